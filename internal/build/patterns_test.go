package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/buildkit/solver/pb"
	"github.com/moby/patternmatcher"

	"hutch"
)

// The patterns select the paths that Docker's own matcher selects, in whatever order the paths are matched.
func TestPathPatterns(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "b", "a.b", "*", "?", "**", "[ab]", "a*", `\*`, "!"}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string, most int) string {
		var all []string
		for range 1 + random.IntN(most) {
			all = append(all, from[random.IntN(len(from))])
		}
		return strings.Join(all, "/")
	}
	var names []string
	for range 200 {
		names = append(names, pick([]string{"a", "b", "ab", "a.b", "*", "!"}, 4))
	}
	names = append(names, ".", "!/a")
	for range 300 {
		var list []string
		for range 1 + random.IntN(4) {
			list = append(list, []string{"", "!"}[random.IntN(2)]+pick(parts, 3))
		}
		list = slices.DeleteFunc(list, func(p string) bool { return p == "!" })
		want, err := patternmatcher.New(list)
		if err != nil {
			continue
		}
		got, err := newPathPatterns(list, "x")
		if err != nil {
			t.Fatalf("%q: %v", list, err)
		}
		if random.IntN(2) == 0 {
			slices.Sort(names)
		} else {
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		}
		for _, name := range names {
			a, err := want.MatchesOrParentMatches(name)
			b, err2 := got.match(t.Context(), name)
			if a != b || err != nil || err2 != nil {
				t.Fatalf("%q, %q: %v and not %v (%v, %v)", list, name, b, a, err, err2)
			}
		}
	}
	for _, list := range [][]string{{"!"}, {"[a"}, {x(hutch.MaxPath + 1)}, slices.Repeat([]string{"a"}, mostPatterns+1)} {
		if _, err := newPathPatterns(list, "x"); hutch.KindOf(err) != hutch.Invalid && hutch.KindOf(err) != hutch.Exhausted {
			t.Errorf("%.40q: %v", list, err)
		}
	}
}

// A build that ends stops comparing paths with patterns. A build can choose them so that this takes hours.
func TestSlowPatterns(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := range mostPatterns - 1 {
		fmt.Fprintf(&lines, "%sb%d\n", strings.Repeat("**a", 100), i)
	}
	in := newTestTree(t, plenty())
	ignore := &node{mode: 0o644}
	if err := errors.Join(in.keep(ignore, strings.NewReader(lines.String())), in.add(".dockerignore", ignore), in.add(strings.Repeat("a/", 900)+"a", &node{mode: fs.ModeDir | 0o755})); err != nil {
		t.Fatal(err)
	}
	slow := errors.New("too slow")
	for what, do := range map[string]func(context.Context) error{
		".dockerignore": func(ctx context.Context) error { return (&solver{}).ignore(ctx, in) },
		"COPY --exclude": func(ctx context.Context) error {
			c := &copying{fileWork: &fileWork{ctx: ctx}, a: &pb.FileActionCopy{ExcludePatterns: strings.Split(strings.TrimSpace(lines.String()), "\n")}}
			if err := c.prepare(); err != nil {
				return err
			}
			_, err := c.chosen(strings.Repeat("a/", 900)+"a", found{})
			return err
		},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, slow)
		done := make(chan error, 1)
		go func() { done <- do(ctx) }()
		select {
		case err := <-done:
			if !errors.Is(err, slow) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s is still being compared 30 s after the build's end", what)
		}
		cancel()
	}
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/membudget"
	"hutch/internal/secret"
)

// Many commands that each print as much as a result can keep make the daemon keep no more than its memory budget
// allows. Each result has the beginning and the end of the output.
func TestResultsShareARoom(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	all := membudget.New(4<<20, 2<<20)
	var mu sync.Mutex
	var calls sync.WaitGroup
	held := 0
	for i := range 8 {
		calls.Go(func() {
			budget, end := all.Open("one")
			t.Cleanup(end) // no answer is read before all have come
			ctx := caller.With(t.Context(), caller.Caller{Budget: budget})
			res, err := b.Exec(ctx, "a", hutch.ExecRequest{
				Command: fmt.Sprintf("echo begin %d; head -c 2000000 /dev/zero | tr '\\0' x; echo end %d", i, i), MaxOutput: 1 << 20,
			}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			var began, ended int
			out := string(res.Stdout)
			fmt.Sscanf(out, "begin %d", &began)
			fmt.Sscanf(out[len(out)-6:], "end %d", &ended)
			if began != i || ended != i || !res.Truncated {
				t.Errorf("%d: it begins with %q, ends with %q, and truncated is %v", i, out[:8], out[len(out)-6:], res.Truncated)
			}
			mu.Lock()
			defer mu.Unlock()
			held += len(out)
		})
	}
	calls.Wait()
	if most := 2<<20 + 8*2*(16<<10); held > most || held < 2<<20-256<<10 {
		t.Errorf("%d bytes are held, of at most %d", held, most)
	}
}

// Output is charged to the memory budget once, however many layers it passes through.
func TestOutputIsChargedOnce(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	const size, total = 1_000_000, 4 << 20
	command := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)
	redacted := secret.Redact(b, func(context.Context) *secret.Redactor {
		return secret.NewRedactor(map[string][]string{"KEY": {"correct horse battery"}})
	})
	for name, c := range map[string]struct {
		svc  hutch.Service
		req  hutch.ExecRequest
		most int
	}{
		"a command":             {b, hutch.ExecRequest{}, size},
		"a stream":              {b, hutch.ExecRequest{StreamOnly: true}, 0},
		"a redacted command":    {redacted, hutch.ExecRequest{}, size},
		"a redacted stream":     {redacted, hutch.ExecRequest{StreamOnly: true}, 0},
		"in a session":          {b, hutch.ExecRequest{SessionID: "s"}, size},
		"redacted in a session": {redacted, hutch.ExecRequest{SessionID: "s"}, size},
	} {
		all := membudget.New(total, total)
		budget, end := all.Open("one")
		c.req.Command = command
		seen := 0
		res, err := c.svc.Exec(caller.With(t.Context(), caller.Caller{Budget: budget}), "a", c.req, func(o hutch.Output) error {
			seen += len(o.Data)
			return nil
		})
		if err != nil || seen != size || len(res.Stdout) != c.most {
			t.Errorf("%s: %d bytes in the stream, %d in the result, %v", name, seen, len(res.Stdout), err)
		}
		if rest, _ := all.Open("other"); !rest.Take(total - c.most) {
			t.Errorf("%s: more than the result's %d bytes are charged", name, c.most)
		}
		end()
	}
}

// The output of git is charged to its caller, and it is an error if the budget is too small for it.
func TestGitIsCharged(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	b.run(t, "a", "git init -q -b main . && seq 200000 > f && git add f && git -c user.name=n -c user.email=e commit -q -m one && seq 200001 400000 > f")
	for _, c := range []struct {
		total int
		fits  bool
	}{{1 << 20, false}, {8 << 20, true}} {
		all := membudget.New(c.total, c.total)
		budget, end := all.Open("one")
		diff, err := b.GitDiff(caller.With(t.Context(), caller.Caller{Budget: budget}), "a", hutch.GitDiffRequest{})
		if c.fits != (err == nil) || !c.fits && !errors.Is(err, hutch.Exhausted) || c.fits && len(diff) < 2_000_000 {
			t.Errorf("with a budget of %d bytes: a difference of %d bytes, %v", c.total, len(diff), err)
		}
		const free = 64 << 10 // more than is kept without a charge
		if rest, _ := all.Open("other"); rest.Take(c.total - len(diff) + free) {
			t.Errorf("with a budget of %d bytes: of a difference of %d bytes, much is not charged", c.total, len(diff))
		}
		end()
	}
}

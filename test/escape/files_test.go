package escape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
)

// agentPaths returns paths of what only the agent may use: its program, open files, memory and environment.
func agentPaths() []string {
	var paths []string
	for _, process := range []string{"self", "1", "thread-self"} {
		for _, name := range []string{"exe", "environ", "maps", "comm", "oom_score_adj", "root/.hutch/hostname", "cwd/.hutch/hostname"} {
			paths = append(paths, "/proc/"+process+"/"+name)
		}
		for n := range 24 {
			paths = append(paths, fmt.Sprintf("/proc/%s/fd/%d", process, n))
		}
	}
	for id := 2; id < 40; id++ { // threads, which no list of processes shows
		paths = append(paths, fmt.Sprintf("/proc/%d/maps", id), fmt.Sprintf("/proc/%d/exe", id))
	}
	return paths
}

// No file operation reaches the agent's own files through /proc: neither its program, from which other sandboxes are
// started, nor its open files.
func TestFilesOfTheAgent(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		f.sh(t, id, "ln -s /proc/self/exe /workspace/link")
		ctx := t.Context()
		for _, p := range append(agentPaths(), "/workspace/link") {
			verbs := map[string]error{
				"chmod":  f.svc.Chmod(ctx, id, p, 0),
				"append": second(f.svc.WriteFile(ctx, id, hutch.WriteRequest{Path: p, Append: true}, strings.NewReader(""))),
				"read":   second(f.svc.ReadFile(ctx, id, hutch.ReadRequest{Path: p}, &bytes.Buffer{})),
			}
			for verb, err := range verbs {
				if err == nil {
					t.Errorf("%s of %s did not fail", verb, p)
				}
			}
		}
		f.checkWorks(t, id)
		f.checkWorks(t, f.sandbox(t, hutch.CreateRequest{}))
	})
}

func second[T any](_ T, err error) error { return err }

// A listing of /proc does not show files that a listing of the agent's folder in /proc refuses.
func TestListOfProc(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		n := 0
		err := f.svc.ListFiles(t.Context(), id, hutch.ListRequest{Path: "/proc", Recursive: true, Hidden: true, Limit: 100_000}, func(i hutch.FileInfo) error {
			n++
			if strings.HasPrefix(i.Path, "/proc/1/") {
				t.Errorf("it lists %s %s", i.Path, i.Target)
			}
			return nil
		})
		if err != nil || n < 10 {
			t.Errorf("%d files, %v", n, err)
		}
	})
}

// No pattern of a caller makes the agent work without end.
func TestPatternsWithoutEnd(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		f.sh(t, id, "touch "+strings.Repeat("a", 60)+"; head -c 60000 /dev/zero | tr '\\0' a > long")
		list := func(ctx context.Context, glob string) error {
			return f.svc.ListFiles(ctx, id, hutch.ListRequest{Glob: glob}, func(hutch.FileInfo) error { return nil })
		}
		search := func(ctx context.Context, pattern string) error {
			return f.svc.SearchFiles(ctx, id, hutch.SearchRequest{Pattern: pattern}, func(hutch.Match) error { return nil })
		}
		for _, glob := range []string{
			strings.Repeat("{a,aa}", 40), strings.Repeat("{a,{b,aa}}", 40), strings.Repeat("{*,**}", 30) + "b",
			strings.Repeat("**/", 300) + "b", strings.Repeat("*a", 300) + "b",
		} {
			f.ends(t, "list "+glob, func(ctx context.Context) error { return list(ctx, glob) })
		}
		for _, pattern := range []string{strings.Repeat("(a?){1000}", 300) + "b", strings.Repeat("a?", 2000) + strings.Repeat("a", 1000) + "b"} {
			f.ends(t, "search "+pattern, func(ctx context.Context) error { return search(ctx, pattern) })
		}
	})
}

// ends checks that a call ends by itself.
func (f *field) ends(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := call(ctx); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%.60q does not end", what)
	}
}

func TestRootlessFiles(t *testing.T) {
	t.Parallel()
	hutchtest.Rootless(t, "TestFilesOfTheAgent|TestListOfProc|TestProgramOfTheAgent")
}

package conversation_test

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hutch/internal/conversation"
	"hutch/internal/hutchtest/steps"
)

// plant makes a root with files in folders of a mode.
func plant(t *testing.T, mode fs.FileMode, files ...string) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	for _, name := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(filepath.Base(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// filesIn lists the files below a root that hold what plant wrote.
func filesIn(t *testing.T, root string) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".hutch-layout" {
			return err
		}
		if b, _ := os.ReadFile(path); string(b) != d.Name() {
			t.Errorf("%s holds %q", path, b)
		}
		found[path[len(root)+1:]] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

func openRoot(t *testing.T, root string, own bool) {
	t.Helper()
	s, err := conversation.New(nil, conversation.Options{Folder: root, Own: own, Secret: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestLayoutOfRoots: the root of an earlier version is moved, the root of another
// program is left as it is, and neither changes at the next start.
func TestLayoutOfRoots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode         fs.FileMode
		own          bool
		before, want []string
	}{
		"earlier":                   {0o700, false, []string{"a/f", "a/d/g", "b~0123456789abcdef/files/x"}, []string{"a/files/d/g", "a/files/f", "b~0123456789abcdef/files/files/x"}},
		"earlier, a folder files":   {0o700, false, []string{"a/f", "a/files/x"}, []string{"a/files/f", "a/files/files/x"}},
		"earlier, in the data":      {0o700, true, []string{"a/files/x"}, []string{"a/files/files/x"}},
		"copied without its modes":  {0o755, false, []string{"a/f", "b/files/x"}, []string{"a/files/f", "b/files/files/x"}},
		"another program's":         {0o755, false, []string{"a/files/x", "b/files/files/y"}, []string{"a/files/x", "b/files/files/y"}},
		"another program's, beside": {0o755, false, []string{"a/files/x", "a/meta.json"}, []string{"a/files/x", "a/meta.json"}},
		"no conversation":           {0o755, true, []string{".cache/f", "note"}, []string{".cache/f", "note"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := plant(t, c.mode, c.before...)
			for range 2 {
				openRoot(t, root, c.own)
				if got := filesIn(t, root); !slices.Equal(got, c.want) {
					t.Errorf("%q became %q, want %q", c.before, got, c.want)
				}
			}
		})
	}
}

const layoutEnv = "HUTCH_TEST_LAYOUT"

// TestLayoutVictim is the process that TestLayoutKilled kills.
func TestLayoutVictim(t *testing.T) {
	root := os.Getenv(layoutEnv)
	if root == "" {
		return
	}
	os.Stdout.WriteString("\n")
	io.Copy(io.Discard, os.Stdin)
	openRoot(t, root, false)
}

// TestLayoutKilled kills an upgrade before each of its steps: the next start
// finishes it, and no file is lost.
func TestLayoutKilled(t *testing.T) {
	t.Parallel()
	want := []string{"a/files/f", "b/files/d/g", "c/files/files/h"}
	for n := 1; ; n++ {
		root := plant(t, 0o700, "a/f", "b/d/g", "c/files/h")
		taken := steps.Victim(t, "TestLayoutVictim", n, layoutEnv+"="+root)
		for range 2 {
			openRoot(t, root, false)
			if got := filesIn(t, root); !slices.Equal(got, want) {
				t.Fatalf("killed before step %d: %q", n, got)
			}
		}
		if entries, err := os.ReadDir(root); len(entries) != 4 || err != nil {
			t.Errorf("killed before step %d: %v, %v", n, entries, err)
		}
		if taken < n-1 {
			if n < 12 {
				t.Errorf("an upgrade has %d steps", taken)
			}
			return
		}
	}
}

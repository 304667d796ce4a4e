package image

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// If many callers unpack at once, the content is made once, and completely. Links are not followed while it is
// written.
func TestUnpack(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	path := writeEROFS(t, map[string]string{
		"/dir/file": "text", "/empty/": "", "/dir/up": "->../../../../" + outside, "/abs": "->" + outside, "/abs.d/file": "x", "/loop": "->loop",
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if dir, err := Unpack(path); err != nil || dir != TreePath(path) {
				t.Errorf("%s, %v", dir, err)
			}
		})
	}
	wg.Wait()
	dir := TreePath(path)
	if text, err := os.ReadFile(filepath.Join(dir, "dir/file")); string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "abs")); target != outside {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "empty")); err != nil || info.Mode() != os.ModeDir|0o755 {
		t.Errorf("the folder is %v, %v", info, err)
	}
	for folder, want := range map[string]int{outside: 0, filepath.Dir(path): 2} {
		if left, err := os.ReadDir(folder); err != nil || len(left) != want {
			t.Errorf("%s has %v, %v", folder, left, err)
		}
	}
}

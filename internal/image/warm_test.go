package image

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	hello  = `printf 'package main\nimport "fmt"\nfunc main() { fmt.Println("hi") }\n' > /tmp/hello.go; cd /tmp && `
	stored = ` 2>&1; find ~/.cache/go-build -name '*-d' | wc -l` // the modules that were compiled inside
)

// A first Go program compiles itself and nothing else, and no program inside can
// change the shared cache.
func TestWarmGo(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hutch-image-") // other users cannot enter t.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	opt := hostOptions()
	cold := makeImage(t, dir, opt)
	if _, ok := cold.LookPath("go"); !ok {
		t.Skip("this machine has no Go")
	}
	if cold.Getenv("GOCACHEPROG") != "" {
		t.Error("the image names a cache that is not there")
	}
	killed := filepath.Join(dir, newPrefix+"killed")
	if err := os.MkdirAll(filepath.Join(killed, "go", goBuild), 0o755); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(killed, old, old); err != nil {
		t.Fatal(err)
	}
	if made, err := warm(t.Context(), dir, opt, "fmt"); err != nil || !made {
		t.Fatal(made, err)
	}
	root := makeImage(t, dir, opt)
	if root.Dir == cold.Dir || root.Getenv("GOCACHEPROG") == "" {
		t.Fatalf("the image does not have the cache: %s, %q", root.Dir, root.Env)
	}
	if exists(killed) {
		t.Error("what was left by a killed process is still there")
	}
	for _, again := range []string{"first", "second"} {
		out, stderr, code := inside(t, root, nil, hello+"go run hello.go"+stored)
		said, n, _ := strings.Cut(strings.TrimSpace(out), "\n")
		if count, err := strconv.Atoi(n); said != "hi" || code != 0 || err != nil || count > 5 {
			t.Errorf("the %s program: %q, %d: %s", again, out, code, stderr)
		}
	}
	if out, _, code := inside(t, root, nil, "find "+goFolder+" -writable; echo x > "+goFolder+"/build/00/x; rm -f "+goFolder+"/cache"); code == 0 || out != "" {
		t.Errorf("it can be written: %q", out)
	}
	t.Run("gvisor", func(t *testing.T) { FirstGoProgram(t, root) })
	if made, err := warm(t.Context(), dir, opt, "no such package"); err != nil || made {
		t.Errorf("it is made a second time: %t, %v", made, err)
	}
}

func makeImage(t *testing.T, dir string, opt HostOptions) Root {
	t.Helper()
	root, err := Host(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// A failed warm-up leaves no files.
func TestWarmFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := warm(t.Context(), dir, hostOptions(), "no/such/package"); err == nil {
		t.Error("a package that is not there was compiled")
	}
	if left, err := fs.Glob(os.DirFS(dir), "*"); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/linux/subid"
	"hutch/internal/wire"
)

// ImageFile is a file of an image: a folder if Mode says so, a link if Link has a target.
type ImageFile struct {
	Path     string
	Mode     fs.FileMode
	UID, GID int
	Link     string
	Device   uint32 // number of a character device
	Content  []byte
}

// WriteImage makes an EROFS file that everyone can read. Parent folders that are missing in the list belong to root.
func WriteImage(t testing.TB, files []ImageFile) string {
	t.Helper()
	path := filepath.Join(ImageFolder(t), "image.erofs")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := erofs.Create(out)
	made := map[string]bool{"/": true}
	for _, f := range files {
		if err := errors.Join(makeParents(w, made, f.Path), writeFile(w, f)); err != nil {
			t.Fatalf("%s: %v", f.Path, err)
		}
		made[f.Path] = true
	}
	if err := errors.Join(w.Close(), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// ImageFolder returns a folder for images. Ordinary users can enter it, unlike the folder of a test. For root, the
// folder is not on an overlay, because the runtime native refuses that.
func ImageFolder(t testing.TB) string {
	t.Helper()
	var st unix.Statfs_t
	base := os.TempDir()
	if err := unix.Statfs(base, &st); err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC && os.Geteuid() == 0 {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "hutch-image-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { subid.RemoveAll(dir) })
	return dir
}

func makeParents(w *erofs.Writer, made map[string]bool, path string) error {
	dir := filepath.Dir(path)
	if made[dir] {
		return nil
	}
	made[dir] = true
	return errors.Join(makeParents(w, made, dir), w.Mkdir(dir, 0o755))
}

func writeFile(w *erofs.Writer, f ImageFile) error {
	switch {
	case f.Link != "":
		return w.Symlink(f.Link, f.Path)
	case f.Device != 0:
		return w.Mknod(f.Path, unix.S_IFCHR|0o666, f.Device)
	case f.Mode.IsDir():
		return errors.Join(w.Mkdir(f.Path, f.Mode.Perm()), w.Chmod(f.Path, f.Mode), w.Chown(f.Path, f.UID, f.GID))
	}
	out, err := w.Create(f.Path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, bytes.NewReader(f.Content))
	return errors.Join(err, out.Close(), w.Chmod(f.Path, f.Mode), w.Chown(f.Path, f.UID, f.GID))
}

// ProbeEnv names a file with the built program, for tests that run where no program can be built.
const ProbeEnv = "HUTCH_TEST_PROBE"

// Probe is the program of an image without a shell: see package probe.
var Probe = sync.OnceValues(func() ([]byte, error) {
	if built := os.Getenv(ProbeEnv); built != "" {
		return os.ReadFile(built)
	}
	dir, err := os.MkdirTemp("", "hutch-probe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "probe")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, reflect.TypeFor[suite]().PkgPath()+"/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(path)
})

// probeImage returns an image with one program and the given files.
func probeImage(t testing.TB, files ...ImageFile) string {
	t.Helper()
	program, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	return WriteImage(t, append([]ImageFile{{Path: "/probe", Mode: 0o755, Content: program}}, files...))
}

// onImage returns the suite with an image instead of the host's programs.
func (s *suite) onImage(t testing.TB, path string, opt image.EROFSOptions) *suite {
	t.Helper()
	root, err := image.FromEROFS(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	other := *s
	other.Root = root
	return &other
}

// probe runs the program of an image without a shell.
func (p *instance) probe(t *testing.T, args ...string) (string, wire.Exit) {
	t.Helper()
	var out strings.Builder
	exit, err := p.agent.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Argv: append([]string{"/probe"}, args...), TimeoutMS: 60_000}, nil, func(o hutch.Output) error {
		out.Write(o.Data)
		return nil
	})
	if err != nil {
		t.Fatalf("probe %q: %s", args, explain(err))
	}
	return strings.TrimSuffix(out.String(), "\n"), exit
}

func (p *instance) wantProbe(t *testing.T, want string, args ...string) {
	t.Helper()
	if got, exit := p.probe(t, args...); got != want || exit.Code != 0 {
		t.Errorf("probe %q gave %q and exit code %d, not %q", args, got, exit.Code, want)
	}
}

// hostPrograms returns files of this machine: programs with the libraries that they load.
func hostPrograms(t testing.TB, programs ...string) (files []ImageFile) {
	t.Helper()
	paths := slices.Clone(programs)
	for _, program := range programs {
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			t.Skipf("ldd %s: %v", program, err)
		}
		for _, word := range strings.Fields(string(out)) {
			if filepath.IsAbs(word) && !slices.Contains(paths, word) {
				paths = append(paths, word)
			}
		}
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, ImageFile{Path: path, Mode: 0o755, Content: text})
	}
	return files
}

// Package hutchtest gives tests real engines: on the runtimes that work on this host, with the built programs and the
// host image.
package hutchtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch/internal/driver"
	"hutch/internal/driver/docker"
	"hutch/internal/driver/gvisor"
	"hutch/internal/driver/native"
	"hutch/internal/engine"
	"hutch/internal/image"
	"hutch/internal/linux/subid"
	"hutch/internal/store"
)

// Runtimes are the runtimes that Hutch has.
var Runtimes = []string{"gvisor", "native"}

// Skip skips a test that cannot run here. In CI every test must run.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("must not be skipped in CI: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Full reports whether all combinations are tested: every suite on every runtime and as every kind of user, even if
// some combinations test the same thing. `make test-full` sets the variable.
func Full() bool { return os.Getenv("HUTCH_TEST_FULL") != "" }

// Pattern returns the pattern of the tests that are repeated as another user: all in a full test, and otherwise most,
// the ones that are most worthwhile.
func Pattern(most, all string) string {
	if Full() {
		return all
	}
	return most
}

// Program returns the path of one of the built programs. They are in bin or, for a copied test binary, in the folder of
// that binary.
func Program(t testing.TB, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if path := filepath.Join(filepath.Dir(self), name); exists(path) {
		return path
	}
	path := filepath.Join(root(), "bin", name)
	if !exists(path) {
		Skip(t, "%s is not built: run `make build`", path)
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// root returns the project's folder.
func root() string {
	if _, file, _, _ := runtime.Caller(0); filepath.IsAbs(file) {
		return filepath.Join(filepath.Dir(file), "..", "..")
	}
	dir, _ := os.Getwd() // with -trimpath, the source's path is unknown, so use the package's folder
	for !exists(filepath.Join(dir, "go.mod")) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return dir
}

// Driver returns a new driver of a runtime with its state in dir. The test is skipped if that runtime does not work
// here.
func Driver(t testing.TB, name, dir string) driver.Driver {
	t.Helper()
	opt := driver.Options{Dir: dir, Agent: Program(t, "hutch-agent")}
	var d driver.Driver
	var err error
	switch name {
	case "native":
		d, err = native.New(opt)
	case "docker":
		d, err = docker.New(opt)
	case "gvisor":
		d, err = gvisor.New(gvisor.Options{Options: opt, Runsc: Program(t, "hutch-runsc")})
	default:
		t.Fatalf("there is no runtime %q", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := works(name, d); err != nil {
		Skip(t, "%s does not work here: %v", name, err)
	}
	return d
}

var (
	checks   sync.Mutex
	verdicts = map[string]error{}
)

// works returns why a driver does not work here, or nil. It asks each driver once in the life of the process.
func works(name string, d driver.Driver) error {
	checks.Lock()
	defer checks.Unlock()
	if err, asked := verdicts[name]; asked {
		return err
	}
	var bad []error
	for _, f := range d.Check(context.Background()).Findings {
		if f.Level == driver.Bad {
			bad = append(bad, errors.New(f.Name+": "+f.Detail))
		}
	}
	verdicts[name] = errors.Join(bad...)
	return verdicts[name]
}

var images struct {
	sync.Mutex
	dir  string
	root image.Root
}

// Image returns the host image, which is made once in the life of the process.
func Image(t testing.TB) image.Root {
	t.Helper()
	images.Lock()
	defer images.Unlock()
	if images.dir != "" {
		return images.root
	}
	dir, err := os.MkdirTemp("", "hutch-images-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	home, _ := os.UserHomeDir()
	r, err := image.Host(context.Background(), dir, image.HostOptions{Path: os.Getenv("PATH"), Home: home})
	if err != nil {
		t.Fatal(err)
	}
	images.dir, images.root = dir, r
	return r
}

// Main runs a package's tests and removes shared data. The functions clean remove data of the package itself.
func Main(m *testing.M, clean ...func()) {
	code := m.Run()
	for _, c := range clean {
		c()
	}
	if images.dir != "" {
		os.RemoveAll(images.dir)
	}
	os.Exit(code)
}

// Engine starts an engine on one runtime. change can change the engine's options before it starts. At the end of the
// test all its sandboxes are destroyed.
func Engine(t testing.TB, name string, change func(*engine.Options)) *engine.Engine {
	t.Helper()
	dir := Dir(t)
	root := Image(t)
	opt := engine.Options{
		Dir: dir, Drivers: []driver.Driver{Driver(t, name, filepath.Join(dir, name))}, Ephemeral: true,
		Image:      func(context.Context, string) (image.Root, error) { return root, nil },
		Sealer:     Sealer(t),
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
		PreviewURL: func(label string) string { return "http://" + label + ".localhost" },
	}
	if change != nil {
		change(&opt)
	}
	e := engine.New(opt)
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// Sealer returns a sealer that has the same key in every test.
func Sealer(t testing.TB) *store.Sealer {
	t.Helper()
	s, err := store.NewSealer(make([]byte, store.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Dir makes a folder with a short path, because paths of sockets must be short. Other users can enter it, which
// sandboxes need.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hutch-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := subid.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Groups returns the control groups of a driver that has its state in dir. The folder dir has the name of the runtime.
func Groups(dir string) (groups []string) {
	sum := sha256.Sum256([]byte(dir)) // drivers name their groups by this sum
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), filepath.Base(dir)+"-"+hex.EncodeToString(sum[:4])) {
			groups = append(groups, path)
		}
		return nil
	})
	return groups
}

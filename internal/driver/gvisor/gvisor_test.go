package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/image"
)

// root is the image of all tests.
var root image.Root

// rootEnv names the image for a test program that must not build one.
const rootEnv = "HUTCH_TEST_ROOT"

func TestMain(m *testing.M) {
	var err error
	code := 1
	if dir := os.Getenv(creatorEnv); dir != "" {
		if err = json.Unmarshal([]byte(os.Getenv(rootEnv)), &root); err == nil {
			err = createForEver(dir)
		}
	} else {
		code, err = runTests(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "gvisor-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	root, err = image.Host(context.Background(), dir, image.HostOptions{Path: os.Getenv("PATH"), Home: os.Getenv("HOME")})
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// path returns the path of a built program.
func path(name string) string { return filepath.Join("..", "..", "..", "bin", name) }

func built(t testing.TB, name string) string {
	t.Helper()
	if _, err := os.Stat(path(name)); err != nil {
		skip(t, "%s is not built: run make build", name)
	}
	return path(name)
}

// skip skips a test that cannot run here; if everything must run, the test fails instead.
func skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" && os.Geteuid() == 0 {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func newDriver(t testing.TB, dir string) *Driver {
	t.Helper()
	d, err := New(Options{
		Options: driver.Options{Dir: dir, Agent: built(t, "hutch-agent")},
		Runsc:   built(t, "hutch-runsc"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := works(d); err != nil {
		skip(t, "gVisor does not work here: %v", err)
	}
	return d
}

var (
	check   sync.Once
	verdict error
)

// works checks once whether gVisor works here, for all drivers.
func works(d *Driver) error {
	check.Do(func() {
		for _, f := range d.Check(context.Background()).Findings {
			if f.Level == driver.Bad {
				verdict = errors.Join(verdict, fmt.Errorf("%s: %s", f.Name, f.Detail))
			}
		}
	})
	return verdict
}

// TestDriver tests that the driver keeps the contract of all drivers.
func TestDriver(t *testing.T) {
	limited := []string{"disk", "pids"}
	if newDriver(t, t.TempDir()).tree != nil {
		limited = append(limited, "memory")
	}
	drivertest.Run(t, drivertest.Config{
		Dir:      (*testing.T).TempDir,
		New:      func(t *testing.T, dir string) driver.Driver { return newDriver(t, dir) },
		Root:     root,
		Kill:     killSentry,
		Isolated: true,
		Adopts:   true,
		Saves:    true,
		Images:   true,
		Limited:  limited,

		Networked: true,
	})
}

// killSentry kills an instance's kernel, as the kernel of the host does when memory runs out.
func killSentry(t *testing.T, d driver.Driver, id string) {
	procs, err := d.(*Driver).folder(id).processes()
	if err != nil {
		t.Fatal(err)
	}
	if err := procs.Sentry.end(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkImage(b *testing.B) { drivertest.BenchmarkImage(b, newDriver(b, b.TempDir()), root) }

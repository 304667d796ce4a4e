package gvisor

import (
	"context"
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

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gvisor-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		os.Chmod(dir, 0o755)
		root, err = image.Host(context.Background(), dir, image.HostOptions{Path: os.Getenv("PATH"), Home: os.Getenv("HOME")})
		if err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

func built(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "bin", name)
	if _, err := os.Stat(path); err != nil {
		skip(t, "%s is not built: run make build", name)
	}
	return path
}

// skip skips a test that cannot run here; where everything must run it fails.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" && os.Geteuid() == 0 {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func newDriver(t *testing.T, dir string) *Driver {
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

// works asks the first driver for all of them.
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

// TestDriver holds the driver to the contract of all drivers.
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
		Limited:  limited,
	})
}

// killSentry kills a place's kernel, as the want of memory does.
func killSentry(t *testing.T, d driver.Driver, id string) {
	procs, err := d.(*Driver).place(id).processes()
	if err != nil {
		t.Fatal(err)
	}
	if err := procs.Sentry.end(t.Context()); err != nil {
		t.Fatal(err)
	}
}

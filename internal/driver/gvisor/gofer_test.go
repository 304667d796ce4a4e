package gvisor

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The gofer is a program of its own, and may do no more than gVisor's.
func TestGoferIsConfined(t *testing.T) {
	t.Parallel()
	inst, _ := create(t, newDriver(t, t.TempDir()), spec("gofer"))
	dir := fmt.Sprintf("/proc/%d", inst.procs.Gofer.PID)
	exe, err := os.Stat(dir + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.Stat(built(t, "hutch-gofer")); err != nil || !os.SameFile(exe, want) {
		t.Errorf("the gofer is not hutch-gofer (%v)", err)
	}
	const some = "000000000004001f" // what internal/driver/gvisor cannot do without: see cmd/hutch-runsc
	for name, want := range map[string]string{
		"CapInh": some, "CapPrm": some, "CapEff": some, "CapBnd": some, "CapAmb": some, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if got := status(t, dir, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	// Of the host it has the image, whose root it is in.
	for link, want := range map[string]string{"root": "/root", "cwd": "/root"} {
		if got, err := os.Readlink(dir + "/" + link); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", link, got, err, want)
		}
	}
}

func status(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(dir + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+name+":\t")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// What a sandbox costs while it does nothing. Beside this it has the memory of
// the programs inside.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	inst, _ := create(t, newDriver(t, t.TempDir()), spec("idle"))
	limit := int64(9<<20 + runtime.NumCPU()*256<<10) // Go's runtime has caches for each core
	deadline := time.Now().Add(20 * time.Second)
	for {
		sentry, gofer := inst.procs.Sentry.anonymous(), inst.procs.Gofer.anonymous()
		if sentry+gofer <= limit {
			t.Logf("sentry %d KiB, gofer %d KiB", sentry>>10, gofer>>10)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sentry %d KiB, gofer %d KiB, at most %d together", sentry>>10, gofer>>10, limit>>10)
		}
		<-time.After(10 * time.Millisecond)
	}
}

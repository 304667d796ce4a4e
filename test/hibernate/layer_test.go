package hibernate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// layers is a room on the runtime whose copies share their files.
func layers(t *testing.T, sleepAfter time.Duration) room {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root's sandboxes share files")
	}
	r := room{}
	r.Engine = hutchtest.Engine(t, "native", func(o *engine.Options) { r.dir, o.SleepAfter = o.Dir, sleepAfter })
	return r
}

var spacious = hutch.Limits{Memory: 256, Disk: 64}

const (
	fill  = "cd /workspace; mkdir d; for i in {1..20}; do head -c 1M /dev/urandom > d/$i; done; sha256sum d/* > sum"
	whole = "cd /workspace; sha256sum --quiet -c sum && echo whole"
)

// forked are three copies of a sandbox with 20 MB.
func (r room) forked(t *testing.T) []hutch.Sandbox {
	t.Helper()
	parent, err := r.Create(t.Context(), hutch.CreateRequest{ID: "parent", Limits: spacious})
	if err != nil {
		t.Fatal(err)
	}
	r.run(t, parent.ID, fill)
	forks, err := r.Fork(t.Context(), parent.ID, hutch.ForkRequest{Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	return forks
}

// A copy takes nothing for what it has not changed.
func TestCopiesShareFiles(t *testing.T) {
	r := layers(t, time.Hour)
	for _, f := range r.forked(t) {
		if got := r.run(t, f.ID, whole+"; df --output=used --block-size=M / | tail -n 1"); got != "whole\n   1M" {
			t.Errorf("it says %q", got)
		}
	}
}

// A copy that sleeps keeps all of its files, though it has changed each of them
// and has written all that it may.
func TestCopiesSleep(t *testing.T) {
	r := layers(t, time.Second)
	fork := r.forked(t)[0].ID
	r.run(t, fork, "cd /workspace; for f in d/*; do head -c 1M /dev/urandom > $f; done; sha256sum d/* > sum; head -c 64M /dev/zero > zero")
	size := r.run(t, fork, "stat -c %s /workspace/zero")
	if size == "0" {
		t.Error("it could write nothing")
	}
	for range 2 {
		r.until(t, fork, hutch.Stopped)
		if got := r.run(t, fork, whole+"; stat -c %s zero"); got != "whole\n"+size {
			t.Errorf("woken it says %q", got)
		}
	}
}

// A daemon that is killed while it shares files leaves copies whole or not at
// all, and nothing of the place that the layer was made in.
func TestKilledWhileSharing(t *testing.T) {
	for _, step := range []string{"laying", "laid", "lying", "forked"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := hutchtest.Dir(t)
			hutchtest.Driver(t, "native", filepath.Join(dir, "native")) // or skip
			killed(t, dir, "TestVictimThatShares", step)
			r := reopen(t, dir, "native")
			all, err := r.Sandboxes(t.Context(), hutch.Filter{})
			if err != nil || len(all) == 0 || step == "forked" && len(all) != 4 {
				t.Errorf("there are %d: %v", len(all), err)
			}
			for _, sb := range all {
				if got := r.run(t, sb.ID, whole); got != "whole" {
					t.Errorf("%s says %q", sb.ID, got)
				}
				if _, err := r.Destroy(t.Context(), sb.ID, true); err != nil {
					t.Error(err)
				}
			}
			places, err := os.ReadDir(filepath.Join(dir, "native"))
			if kept := r.kept(t); len(kept) != 0 || len(places) != 0 || err != nil {
				t.Errorf("left: %q, %v, %v", kept, places, err)
			}
		})
	}
}

// TestVictimThatShares is the daemon that is killed.
func TestVictimThatShares(t *testing.T) {
	step, dir := os.Getenv(stepEnv), os.Getenv(dirEnv)
	if step == "" {
		return // it is one only for TestKilledWhileSharing
	}
	h := laying{step: step}
	r := open(t, dir, "native", func(d driver.Driver) driver.Driver {
		h.Layerer = d.(driver.Layerer)
		return h
	})
	r.forked(t)
	h.halt("forked")
	t.Fatal("it lives")
}

// laying is a driver of layers that comes to one step and no further.
type laying struct {
	driver.Layerer
	step string
}

func (l laying) halt(step string) {
	if step == l.step {
		fmt.Println("at step " + step)
		select {}
	}
}

func (l laying) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	inst, err := l.Layerer.Create(ctx, spec)
	if spec.Layer != nil {
		l.halt("lying")
	}
	return inst, err
}

func (l laying) Layer(ctx context.Context, inst driver.Instance) (driver.Layer, error) {
	l.halt("laying")
	below, err := l.Layerer.Layer(ctx, inst)
	l.halt("laid")
	return below, err
}

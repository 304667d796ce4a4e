package hibernate

import (
	"os"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// layers returns a room on the runtime whose copies share their files.
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

// forked returns three copies of a sandbox with 20 MB.
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

// A copy takes no space for files that it has not changed.
func TestCopiesShareFiles(t *testing.T) {
	r := layers(t, time.Hour)
	for _, f := range r.forked(t) {
		if got := r.run(t, f.ID, whole+"; df --output=used --block-size=M / | tail -n 1"); got != "whole\n   1M" {
			t.Errorf("it says %q", got)
		}
	}
}

// A sleeping copy keeps all of its files, although it has changed each of them and has written as much as it can.
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

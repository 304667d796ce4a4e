package cgroup

import (
	"testing"
	"time"
)

func TestWatchTellsOfTheSoftLimit(t *testing.T) {
	t.Parallel()
	g := group(t, Limits{Memory: 400 << 20})
	w, err := g.WatchMemory(40 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := start(t, g, `x=$(head -c 60000000 /dev/zero | tr '\0' x); sleep 1000; : $x`) // the shell stays, and has x
	defer cmd.Wait()
	defer cmd.Process.Kill()
	began := time.Now()
	for {
		w.Wait(t.Context(), 20*time.Second)
		r, err := w.Read()
		if err != nil {
			t.Fatal(err)
		}
		if r.Used > 40<<20 {
			break
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("no word of it: %+v", r)
		}
	}
}

func TestWatchedGroupIsHeldNotKilled(t *testing.T) {
	t.Parallel()
	g := group(t, Limits{Memory: 30 << 20})
	w, err := g.WatchMemory(20 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Hold(); err != nil {
		t.Fatal(err)
	}
	if !w.Events() {
		t.Skip("version 2 slows down, and kills at the limit")
	}
	cmd := start(t, g, `x=$(head -c 60000000 /dev/zero | tr '\0' x); exit 7`)
	await(t, "the group to be held", func() bool {
		r, err := w.Read()
		return err == nil && r.Held
	})
	if err := g.SetMemory(600 << 20); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("it ended with %v, not as it wanted", cmd.ProcessState)
	}
	if err := g.SetMemory(100 << 20); err != nil {
		t.Error(err)
	}
	if u, err := g.Usage(); err != nil || u.OOMKills != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

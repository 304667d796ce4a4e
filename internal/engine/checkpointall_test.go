package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
)

// checkpoints copies the sandboxes for a backup, calls do with the results while the copies exist, and then removes the
// copies.
func (b *bench) checkpoints(t *testing.T, do func([]hutch.Checkpoint)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []hutch.Checkpoint
	done := false
	err := b.CheckpointAll(ctx, func(c hutch.Checkpoint) error {
		if !c.Done {
			all = append(all, c)
			return nil
		}
		do(all)
		done = true
		cancel()
		return nil
	})
	if err != nil || !done {
		t.Fatalf("done %v, %v", done, err)
	}
}

func (b *bench) files(t *testing.T, folder string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(b.opt.Dir, folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Sandboxes that were awake continue, after a restore, from their copies in the backup.
func TestCheckpointAll(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "awake", Env: map[string]string{"NAME": "value"}})
	b.create(t, hutch.CreateRequest{ID: "asleep", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.run(t, "awake", "echo kept > file")
	b.until(t, "asleep", hutch.Stopped)
	kept := t.TempDir()
	b.checkpoints(t, func(all []hutch.Checkpoint) {
		if len(all) != 1 || all[0] != (hutch.Checkpoint{SandboxID: "awake"}) {
			t.Errorf("%+v", all)
		}
		copies := b.files(t, "checkpoints")
		if len(copies) != 1 {
			t.Fatalf("copies %q", copies)
		}
		data, err := os.ReadFile(copies[0])
		if err == nil {
			err = os.WriteFile(filepath.Join(kept, filepath.Base(copies[0])), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := b.CheckpointAll(t.Context(), func(hutch.Checkpoint) error { return nil }); !errors.Is(err, hutch.Conflict) {
			t.Errorf("a second one at a time: %v", err)
		}
		if got := b.run(t, "awake", "cat file"); got != "kept\n" { // it continues to run
			t.Errorf("%q", got)
		}
	})
	if left := b.files(t, "checkpoints"); len(left) != 0 {
		t.Errorf("left %q", left)
	}
	b.run(t, "awake", "echo later > file")

	// The machine is lost, and the backup is restored on another machine.
	b.end(t)
	b.driver.Kill("awake")
	list, err := os.ReadDir(kept)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := os.Rename(filepath.Join(kept, list[0].Name()), filepath.Join(b.opt.Dir, "files", "awake.tar")); err != nil {
		t.Fatal(err)
	}
	b.opt.Restored = true
	b.boot(t)
	if sb := b.until(t, "awake", hutch.Stopped); !strings.Contains(sb.Reason, "backup") {
		t.Errorf("reason %q", sb.Reason)
	}
	if got := b.run(t, "awake", "cat file; echo $NAME"); got != "kept\nvalue\n" {
		t.Errorf("%q", got)
	}
}

// A sandbox that cannot be copied is reported with the reason, and does not keep the others out.
func TestCheckpointOfAHostileSandbox(t *testing.T) {
	b := start(t, nil)
	for _, id := range []string{"a", "b", "c"} {
		b.create(t, hutch.CreateRequest{ID: id})
	}
	b.run(t, "b", `rm .tools/tar; printf '#!/bin/sh\nexit 3' > .tools/tar; chmod +x .tools/tar`)
	b.checkpoints(t, func(all []hutch.Checkpoint) {
		missing := 0
		for _, c := range all {
			if c.Missing != "" {
				missing++
				if c.SandboxID != "b" || c.Memory {
					t.Errorf("%+v", c)
				}
			}
		}
		if copies := b.files(t, "checkpoints"); len(all) != 3 || missing != 1 || len(copies) != 2 {
			t.Errorf("%+v, copies %q", all, copies)
		}
	})
}

// When the time for all copies is over, the remaining sandboxes are reported, whether their copies had begun or not.
func TestCheckpointsThatTakeTooLong(t *testing.T) {
	b := start(t, nil)
	for _, id := range []string{"a", "b", "c"} {
		b.create(t, hutch.CreateRequest{ID: id})
	}
	for _, id := range []string{"a", "b"} {
		b.run(t, id, `rm .tools/tar; printf '#!/bin/sh\nexec sleep 300' > .tools/tar; chmod +x .tools/tar`)
	}
	var missing []string
	err := b.CheckpointWithin(t.Context(), time.Second, func(c hutch.Checkpoint) error {
		if !strings.Contains(c.Missing, "all sandboxes took longer") {
			t.Errorf("%+v", c)
		}
		missing = append(missing, c.SandboxID)
		return nil
	})
	if slices.Sort(missing); err != nil || !slices.Equal(missing, []string{"a", "b", "c"}) {
		t.Errorf("missing %q, %v", missing, err)
	}
}

// A caller that disconnects ends the copies, also one that is being made.
func TestCheckpointThatIsCancelled(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	begun := filepath.Join(t.TempDir(), "begun")
	b.run(t, "a", `rm .tools/tar; printf '#!/bin/sh\ntouch `+begun+`\nexec sleep 300' > .tools/tar; chmod +x .tools/tar`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(begun); err == nil {
				return
			}
		}
	}()
	if err := b.CheckpointAll(ctx, func(c hutch.Checkpoint) error { t.Errorf("%+v", c); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := b.files(t, "checkpoints"); len(left) != 0 {
		t.Errorf("left %q", left)
	}
	if _, err := os.Stat(begun); err != nil {
		t.Error("no copy was begun")
	}
}

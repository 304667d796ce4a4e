package engine_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/engine"
)

func as(t *testing.T, owner string) context.Context {
	return caller.WithOwner(t.Context(), caller.Owner{ID: owner})
}

func (b *bench) runAs(t *testing.T, owner, id, command string) string {
	t.Helper()
	res, err := b.Exec(as(t, owner), id, hutch.ExecRequest{Command: command}, nil)
	if err != nil {
		t.Fatalf("%s of %s: %s: %v", id, owner, command, err)
	}
	return string(res.Stdout) + string(res.Stderr)
}

// Two owners can use the same id for two sandboxes, also after a restart and sleep.
func TestOwnersShareNoIDs(t *testing.T) {
	b := start(t, nil)
	owners := []string{"", "ada", "bob"}
	for _, owner := range owners {
		sb, err := b.Create(as(t, owner), hutch.CreateRequest{ID: "same"})
		if err != nil || sb.ID != "same" || sb.Owner != owner {
			t.Fatalf("%+v, %v", sb, err)
		}
		b.runAs(t, owner, "same", "echo 'of "+owner+"' > mine; test $SANDBOX_ID = same")
	}
	if _, err := b.Create(as(t, "ada"), hutch.CreateRequest{ID: "hers"}); err != nil {
		t.Fatal(err)
	}
	b.end(t)
	b.boot(t)
	for _, owner := range owners {
		if got := b.runAs(t, owner, "same", "cat mine"); got != "of "+owner+"\n" {
			t.Errorf("%s reads %q", owner, got)
		}
	}
	for owner, want := range map[string][]string{"": {"same"}, "ada": {"same", "hers"}, "bob": {"same"}, "eve": nil} {
		list, err := b.Sandboxes(as(t, owner), hutch.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, sb := range list {
			ids = append(ids, sb.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%q lists %q", owner, ids)
		}
	}
	if all, err := b.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(all) != 4 {
		t.Errorf("the server lists %d, %v", len(all), err)
	}
	if _, err := b.Destroy(as(t, "bob"), "same", true); err != nil {
		t.Error(err)
	}
	if _, err := b.Destroy(as(t, "bob"), "hers", true); err != nil {
		t.Error(err)
	}
	b.runAs(t, "ada", "same", "true")
	b.runAs(t, "ada", "hers", "true")
}

// A sandbox of another owner is reported in the same way as one that never existed.
func TestAnothersSandboxIsNotFound(t *testing.T) {
	b := start(t, nil)
	exec := func(owner string) error {
		_, err := b.Exec(as(t, owner), "hers", hutch.ExecRequest{Command: "true"}, nil)
		return err
	}
	never := exec("bob")
	if _, err := b.Create(as(t, "ada"), hutch.CreateRequest{ID: "hers"}); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"", "bob"} {
		if err := exec(owner); !errors.Is(err, hutch.NotFound) || !reflect.DeepEqual(err, never) {
			t.Errorf("%q: %v, and when there was none: %v", owner, err, never)
		}
	}
}

func TestSandboxesOfAnOwner(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.MaxSandboxes = 10 })
	ctx := caller.WithOwner(t.Context(), caller.Owner{ID: "ada", MaxSandboxes: 3})
	var wg sync.WaitGroup
	refused := make(chan error, 10)
	for range 10 {
		wg.Go(func() {
			if _, err := b.Create(ctx, hutch.CreateRequest{}); err != nil {
				refused <- err
			}
		})
	}
	wg.Wait()
	close(refused)
	if len(refused) != 7 {
		t.Errorf("%d of 10 were refused, not 7", len(refused))
	}
	for err := range refused {
		if !errors.Is(err, hutch.Exhausted) {
			t.Error(err)
		}
	}
	if _, err := b.Create(as(t, "bob"), hutch.CreateRequest{}); err != nil {
		t.Error(err)
	}
}

// Sandboxes that sleep count towards their owner's limit, so an owner cannot fill the disk with them.
func TestSandboxesThatSleepCount(t *testing.T) {
	b := start(t, nil)
	ctx := caller.WithOwner(t.Context(), caller.Owner{ID: "ada", MaxSandboxes: 1})
	asleep := func() bool {
		sb, err := b.Sandbox(ctx, "a")
		return err == nil && sb.Status == hutch.Stopped
	}
	if _, err := b.Create(ctx, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); !asleep(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not sleep")
		}
	}
	if _, err := b.Create(ctx, hutch.CreateRequest{}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := b.Exec(ctx, "a", hutch.ExecRequest{Command: "true"}, nil); err != nil {
		t.Errorf("it does not wake: %v", err)
	}
}

// Only their owner can use snapshots, unless they are shared. Every owner can start sandboxes from a shared snapshot,
// but only its owner can delete it.
func TestSnapshotsOfAnOwner(t *testing.T) {
	b := start(t, nil)
	sb, err := b.Create(as(t, "ada"), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []hutch.SnapshotRequest{{Name: "own"}, {Name: "shared", Shared: true}} {
		if _, err := b.Snapshot(as(t, "ada"), sb.ID, req); err != nil {
			t.Fatal(err)
		}
	}
	bob := as(t, "bob")
	if list, err := b.Snapshots(bob); len(list) != 1 || list[0].Name != "shared" || err != nil {
		t.Errorf("bob sees %+v, %v", list, err)
	}
	if _, err := b.Create(bob, hutch.CreateRequest{Snapshot: "own"}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob begins as ada's: %v", err)
	}
	if _, err := b.Create(bob, hutch.CreateRequest{Snapshot: "shared"}); err != nil {
		t.Errorf("bob begins as what is shared: %v", err)
	}
	if err := b.DeleteSnapshot(bob, "shared"); !errors.Is(err, hutch.Denied) {
		t.Errorf("bob deletes what is shared: %v", err)
	}
	if err := b.DeleteSnapshot(bob, "own"); err != nil { // the same as for an unknown id
		t.Errorf("bob deletes ada's: %v", err)
	}
	if list, err := b.Snapshots(as(t, "ada")); len(list) != 2 || err != nil {
		t.Errorf("ada sees %+v, %v", list, err)
	}
}

// A brief list asks no agent, so it does not contain data from inside the sandboxes.
func TestBriefListAsksNoAgent(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "busy"})
	b.create(t, hutch.CreateRequest{ID: "other"})
	if _, err := b.StartProcess(t.Context(), "busy", hutch.ProcessRequest{Command: "sleep 100", Name: "long"}); err != nil {
		t.Fatal(err)
	}
	for brief, want := range map[bool]int{true: 0, false: 1} {
		list, err := b.Sandboxes(t.Context(), hutch.Filter{ID: "busy", Brief: brief})
		if err != nil || len(list) != 1 || list[0].ID != "busy" || len(list[0].Processes) != want {
			t.Errorf("brief %t: %+v, %v", brief, list, err)
		}
	}
	if list, err := b.Sandboxes(t.Context(), hutch.Filter{ID: "none", Brief: true}); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
	"hutch/internal/image"
)

// pooled is an engine with a pool that is filled.
func pooled(t *testing.T, p engine.Pool) *bench {
	t.Helper()
	b := start(t, func(o *engine.Options) { o.Pool = p })
	b.ready(t, min(p.Min, p.Max))
	return b
}

// ready waits until n instances are ready.
func (b *bench) ready(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); b.PoolState().Ready != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v, not %d ready", b.PoolState(), n)
		}
	}
}

func TestPoolServesCreates(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 4, Min: 2})
	sb := b.create(t, hutch.CreateRequest{ID: "mine", Env: map[string]string{"WHOSE": "ours"}})
	if out := b.run(t, sb.ID, "echo $SANDBOX_ID $WHOSE"); out != "mine ours\n" {
		t.Errorf("it says %q", out)
	}
	if s := b.PoolState(); s.Hits != 1 || s.Misses != 0 {
		t.Errorf("%+v", s)
	}
	b.ready(t, 2)
	b.create(t, hutch.CreateRequest{ID: "large", Limits: hutch.Limits{Memory: 2048}})
	if s := b.PoolState(); s.Hits != 1 || s.Misses != 1 {
		t.Errorf("of another size: %+v", s)
	}
}

func TestPooledSandboxOutlivesTheEngine(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 1, Min: 1})
	b.create(t, hutch.CreateRequest{ID: "stays", Env: map[string]string{"KEPT": "yes"}})
	b.run(t, "stays", "echo here > file")
	b.ready(t, 1)
	b.end(t)
	b.boot(t)
	if out := b.run(t, "stays", "cat file; echo $KEPT"); out != "here\nyes\n" {
		t.Errorf("found again, it says %q", out)
	}
}

// Callers that race for the instances of the pool get one instance each.
func TestPoolGivesToOneCallerOnly(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 8, Min: 8})
	b.race(t, hutch.CreateRequest{})
	if s := b.PoolState(); s.Hits < 8 || s.Hits+s.Misses != 24 {
		t.Errorf("%+v", s)
	}
}

func TestPoolGivesCopiesToOneCallerOnly(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 4, Room: 1 << 30})
	snap := b.template(t, t.Context(), hutch.SnapshotRequest{})
	for range 2 {
		b.create(t, hutch.CreateRequest{Snapshot: snap.ID})
	}
	b.ready(t, 4)
	b.race(t, hutch.CreateRequest{Snapshot: snap.ID})
	if k := b.copies(t, snap.ID); k.Hits < 4 || k.Hits+k.Misses != 28 {
		t.Errorf("%+v", k)
	}
}

// race makes many create calls at once, and checks that no two got the same instance.
func (b *bench) race(t *testing.T, req hutch.CreateRequest) {
	t.Helper()
	var all sync.WaitGroup
	homes := make([]string, 24)
	for i := range homes {
		all.Go(func() {
			sb, err := b.Create(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			homes[i] = b.run(t, sb.ID, "pwd")
		})
	}
	all.Wait()
	seen := map[string]int{}
	for i, home := range homes {
		if j, taken := seen[home]; taken {
			t.Errorf("racers %d and %d are both in %s", i, j, home)
		}
		seen[home] = i
	}
}

// A copy of a template with many files takes long. Other callers get their instances meanwhile, and the pool has no
// more instances than its maximum.
func TestPoolFillsBesideCopies(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 4, Min: 2, Room: 1 << 30})
	snap := b.template(t, t.Context(), hutch.SnapshotRequest{})
	b.ready(t, 2)
	begun, end := make(chan struct{}), make(chan struct{})
	var others atomic.Int32
	b.driver.Break(fake.Faults{Create: func(id string) error {
		if strings.HasPrefix(id, "w-") && others.Add(1) == 1 {
			close(begun)
			<-end
		}
		return nil
	}})
	defer b.driver.Break(fake.Faults{})
	defer close(end)
	for range 2 { // a single create makes no ready copy
		b.create(t, hutch.CreateRequest{Snapshot: snap.ID})
	}
	select {
	case <-begun:
	case <-time.After(20 * time.Second):
		t.Fatal("no copy is made")
	}
	for range 2 {
		b.create(t, hutch.CreateRequest{})
	}
	b.ready(t, 2)
	if s := b.PoolState(); s.Hits != 2 {
		t.Errorf("%+v", s)
	}
}

// While a create is in progress, the pool is not filled.
func TestPoolMakesWay(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 4, Min: 2})
	var slow atomic.Bool
	begun := make(chan struct{})
	b.driver.Break(fake.Faults{Create: func(id string) error {
		if strings.HasPrefix(id, "w-") {
			if slow.Load() {
				t.Error("an instance for later is made before one for now")
			}
			return nil
		}
		slow.Store(true)
		defer slow.Store(false)
		close(begun)
		<-time.After(100 * time.Millisecond) // how long a start takes with this driver
		return nil
	}})
	var cold sync.WaitGroup
	cold.Go(func() {
		if _, err := b.Create(t.Context(), hutch.CreateRequest{Limits: hutch.Limits{Memory: 2048}}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	b.create(t, hutch.CreateRequest{}) // leaves one instance ready
	cold.Wait()
	b.ready(t, 2)
	if s := b.PoolState(); s.Hits != 1 {
		t.Errorf("%+v", s)
	}
}

func TestPoolSkipsTheDead(t *testing.T) {
	var mu sync.Mutex
	var instances []string
	b := start(t, func(o *engine.Options) { o.Pool = engine.Pool{Max: 2, Min: 0} })
	b.driver.Break(fake.Faults{Create: func(id string) error {
		mu.Lock()
		defer mu.Unlock()
		instances = append(instances, id)
		return nil
	}})
	for i := range 3 { // so that there is demand for instances
		b.create(t, hutch.CreateRequest{ID: fmt.Sprint("first-", i)})
	}
	b.ready(t, 2)
	mu.Lock()
	for _, instance := range instances {
		if strings.HasPrefix(instance, "w-") {
			b.driver.Kill(instance)
		}
	}
	mu.Unlock()
	b.create(t, hutch.CreateRequest{ID: "lives"})
	if out := b.run(t, "lives", "echo yes"); out != "yes\n" {
		t.Errorf("it says %q", out)
	}
	b.ready(t, 2)
}

// An instance that turns out to be unusable only delays the start of its sandbox.
func TestPoolOfNoUse(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 1, Min: 1})
	var stale atomic.Bool
	b.end(t)
	b.opt.Image = changing(&stale)
	b.boot(t)
	b.ready(t, 1)
	stale.Store(true)
	b.create(t, hutch.CreateRequest{ID: "new"})
	if out := b.run(t, "new", "echo $AGE"); out != "new\n" {
		t.Errorf("made from an image of age %q", out)
	}
}

func TestPoolEndsWithTheEngine(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 3, Min: 3})
	b.end(t)
	if n, err := b.driver.Sweep(t.Context(), func(string) bool { return false }); n != 0 || err != nil {
		t.Errorf("%d instances were left (%v)", n, err)
	}
	b.boot(t)
}

func TestPoolGivesWayToMemory(t *testing.T) {
	var short atomic.Bool
	b := pooled(t, engine.Pool{Max: 4, Min: 3, Short: short.Load})
	short.Store(true)
	b.create(t, hutch.CreateRequest{ID: "one"}) // the pool checks its instances
	b.ready(t, 0)
	short.Store(false)
	b.create(t, hutch.CreateRequest{ID: "two"})
	b.ready(t, 3)
}

func TestPoolOnABrokenRuntime(t *testing.T) {
	b := start(t, nil)
	b.end(t)
	b.opt.Pool = engine.Pool{Max: 2, Min: 2}
	b.driver.Break(fake.Faults{Create: func(string) error { return errors.New("no luck") }})
	b.boot(t)
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "x"}); err == nil {
		t.Error("made from nothing")
	}
	b.driver.Break(fake.Faults{})
	b.create(t, hutch.CreateRequest{ID: "x"})
	b.ready(t, 2)
}

// changing is an image whose environment changes when stale is set.
func changing(stale *atomic.Bool) func(context.Context, string) (image.Root, error) {
	return func(context.Context, string) (image.Root, error) {
		if stale.Load() {
			return image.Root{Env: []string{"AGE=new"}}, nil
		}
		return image.Root{Env: []string{"AGE=old"}}, nil
	}
}

// template makes a sandbox with a file, and a snapshot of it from which other sandboxes start. It creates two sandboxes
// from the snapshot, so that the pool keeps two copies ready.
func (b *bench) template(t *testing.T, ctx context.Context, req hutch.SnapshotRequest) hutch.Snapshot {
	t.Helper()
	sb, err := b.Create(ctx, hutch.CreateRequest{Limits: hutch.Limits{Memory: 700}}) // not from the pool, which has no tar here
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteFile(ctx, sb.ID, hutch.WriteRequest{Path: "inherited"}, strings.NewReader("from the first")); err != nil {
		t.Fatal(err)
	}
	snap, err := b.Snapshot(ctx, sb.ID, req)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.Create(ctx, hutch.CreateRequest{Snapshot: snap.ID}); err != nil {
			t.Fatal(err)
		}
	}
	return snap
}

// copies are the ready copies of a snapshot.
func (b *bench) copies(t *testing.T, snapshot string) hutch.PoolKind {
	t.Helper()
	for _, k := range b.PoolState().Kinds {
		if k.Snapshot == snapshot {
			return k
		}
	}
	return hutch.PoolKind{}
}

func TestPoolOfTemplates(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 8, Room: 1 << 30})
	snap := b.template(t, t.Context(), hutch.SnapshotRequest{Name: "base"})
	b.ready(t, 2)
	sb := b.create(t, hutch.CreateRequest{ID: "copy", Snapshot: "base", Env: map[string]string{"WHOSE": "ours"}})
	if out := b.run(t, sb.ID, "cat inherited; echo; echo $SANDBOX_ID $WHOSE"); out != "from the first\ncopy ours\n" {
		t.Errorf("it says %q", out)
	}
	if k := b.copies(t, snap.ID); k.Hits != 1 || k.Misses != 2 {
		t.Errorf("%+v", k)
	}
	b.ready(t, 3)
	if err := b.DeleteSnapshot(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	if k := b.copies(t, snap.ID); k.Ready != 0 {
		t.Errorf("of what was deleted there is %+v", k)
	}
	b.ready(t, 0)
	again := b.template(t, t.Context(), hutch.SnapshotRequest{Name: "base"})
	if k := b.copies(t, again.ID); k.Hits != 0 {
		t.Errorf("of another by that name: %+v", k)
	}
}

// Only owners that can use a snapshot get its copies. A copy belongs to the owner whose requests caused it.
func TestPoolOfTemplatesKnowsOwners(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 8, Room: 1 << 30})
	ada := caller.WithOwner(t.Context(), caller.Owner{ID: "ada"})
	eve := caller.WithOwner(t.Context(), caller.Owner{ID: "eve"})
	own := b.template(t, ada, hutch.SnapshotRequest{})
	shared := b.template(t, ada, hutch.SnapshotRequest{Shared: true})
	for own := b.copies(t, own.ID); own.Ready < own.Wanted; own = b.copies(t, own.Snapshot) {
		time.Sleep(time.Millisecond)
	}
	if _, err := b.Create(eve, hutch.CreateRequest{Snapshot: own.ID}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("another's: %v", err)
	}
	if k := b.copies(t, own.ID); k.Hits != 0 || k.Misses != 2 {
		t.Errorf("%+v", k)
	}
	if _, err := b.Create(eve, hutch.CreateRequest{Snapshot: shared.ID}); err != nil {
		t.Error(err)
	}
}

// Ready copies of snapshots are large: their number is bounded, and when
// memory is short they are removed first.
func TestPoolOfTemplatesIsBounded(t *testing.T) {
	var short atomic.Bool
	b := pooled(t, engine.Pool{Max: 8, Min: 2, Room: 1, Short: short.Load})
	snap := b.template(t, t.Context(), hutch.SnapshotRequest{})
	b.ready(t, 2)
	if k := b.copies(t, snap.ID); k.Ready != 0 || k.Why != "there is no room for more" {
		t.Errorf("%+v", k)
	}
	b.end(t)
	b.opt.Pool.Room = 1 << 30
	b.boot(t)
	for range 4 {
		b.create(t, hutch.CreateRequest{Snapshot: snap.ID})
	}
	b.ready(t, 6)
	short.Store(true)
	b.create(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 1024}}) // the pool checks its instances
	b.ready(t, 2)
	if k := b.copies(t, snap.ID); k.Ready != 0 || !strings.Contains(k.Why, "short") {
		t.Errorf("%+v", k)
	}
	b.create(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 1024}})
	b.ready(t, 0)
}

// Many creates of one kind leave slots in the pool for the usual kind. A kind that cannot be made delays no caller.
func TestPoolIsShared(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 4, Min: 2, Room: 1 << 30})
	for range 6 {
		b.create(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 1024}})
	}
	b.ready(t, 4)
	b.create(t, hutch.CreateRequest{})
	b.ready(t, 4)
	if k := b.PoolState().Kinds; len(k) != 2 || k[0].Ready != 2 || k[1].Ready != 2 {
		t.Errorf("%+v", k)
	}
}

// TestPoolIsFilledWhileStartsHang: sandboxes whose start never ends do not keep the pool empty for all others. Even if
// they are as many as the server starts at once, other owners can start theirs.
func TestPoolIsFilledWhileStartsHang(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 1, Min: 1})
	hangs, release := make(chan struct{}, 100), make(chan struct{})
	var hung atomic.Int32
	b.driver.Break(fake.Faults{Create: func(id string) error {
		if strings.HasPrefix(id, "o-") && int(hung.Add(1)) <= 2*runtime.NumCPU() {
			hangs <- struct{}{}
			<-release
		}
		return nil
	}})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(release)
	eve := caller.WithOwner(t.Context(), caller.Owner{ID: "eve"})
	for range 2*runtime.NumCPU() + 2 {
		all.Go(func() { b.Create(eve, hutch.CreateRequest{Limits: hutch.Limits{Memory: 2048}}) })
	}
	for range 2 * runtime.NumCPU() {
		<-hangs
	}
	b.create(t, hutch.CreateRequest{}) // from the pool
	bob := caller.WithOwner(t.Context(), caller.Owner{ID: "bob"})
	if _, err := b.Create(bob, hutch.CreateRequest{Limits: hutch.Limits{Memory: 1024}}); err != nil {
		t.Error(err)
	}
	b.ready(t, 1)
}

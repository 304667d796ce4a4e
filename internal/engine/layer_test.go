package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
)

// sharing is the fake driver with layers. A layer is a folder that is copied.
type sharing struct {
	*fake.Driver
	dir          string // folder of the instances
	refuse, fail error  // errors of Layer, and of Create on a layer

	mu           sync.Mutex
	made, closed int
}

type folder struct {
	of   *sharing
	path string
}

func (d *sharing) Layers() bool { return true }

func (d *sharing) Layer(ctx context.Context, inst driver.Instance) (driver.Layer, error) {
	if d.refuse != nil {
		return nil, errors.Join(d.refuse, inst.Destroy(ctx))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	l := folder{d, filepath.Join(d.dir, fmt.Sprint(".layer", d.made))}
	from := filepath.Join(d.dir, string(inst.Handle()[1:len(inst.Handle())-1]))
	err := errors.Join(os.RemoveAll(filepath.Join(from, ".tools")), os.CopyFS(l.path, os.DirFS(from)), inst.Destroy(ctx))
	return l, err
}

func (d *sharing) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if spec.Layer != nil && d.fail != nil {
		return nil, d.fail
	}
	inst, err := d.Driver.Create(ctx, spec)
	if err == nil && spec.Layer != nil {
		err = os.CopyFS(filepath.Join(d.dir, spec.ID), os.DirFS(spec.Layer.(folder).path))
	}
	return inst, err
}

func (l folder) Close() error {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.closed++
	return os.RemoveAll(l.path)
}

// want waits until the given numbers of layers were made and closed: the layers of a sandbox are closed soon after its
// status shows that it has ended.
func (d *sharing) want(t *testing.T, made, closed int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		nowMade, nowClosed := d.counts()
		if nowMade == made && nowClosed == closed {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d layers were made and %d closed, not %d and %d", nowMade, nowClosed, made, closed)
		}
	}
}

func (d *sharing) counts() (made, closed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made, d.closed
}

// share starts an engine with a sandbox that has files.
func share(t *testing.T) (*bench, *sharing) {
	t.Helper()
	d := &sharing{dir: t.TempDir()}
	d.Driver = fake.New(d.dir)
	b := start(t, func(o *engine.Options) { o.Drivers = []driver.Driver{d} })
	b.driver = d.Driver
	b.create(t, hutch.CreateRequest{ID: "parent", Limits: hutch.Limits{Memory: 1024, Disk: 512}})
	b.run(t, "parent", "head -c 5000000 /dev/zero > large; echo kept > file")
	return b, d
}

func (b *bench) fork(t *testing.T, n int) []hutch.Sandbox {
	t.Helper()
	forks, err := b.Fork(t.Context(), "parent", hutch.ForkRequest{Count: n})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forks {
		if got := b.run(t, f.ID, "cat file; stat -c %s large"); got != "kept\n5000000\n" {
			t.Errorf("the fork says %q", got)
		}
	}
	return forks
}

// A fork starts on the machine of its parent, also if the labels of the machine no longer match those that the parent
// requested.
func TestForkAfterRelabelling(t *testing.T) {
	zone := func(name string) map[string]string { return map[string]string{"zone": name} }
	b := start(t, func(o *engine.Options) { o.NodeLabels = zone("a") })
	b.create(t, hutch.CreateRequest{ID: "parent", NodeSelector: zone("a")})
	b.end(t)
	b.opt.NodeLabels = zone("b")
	b.boot(t)
	forks, err := b.Fork(t.Context(), "parent", hutch.ForkRequest{})
	if err != nil || len(forks) != 1 || forks[0].NodeSelector["zone"] != "a" {
		t.Errorf("its copy: %+v %v", forks, err)
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "other", NodeSelector: zone("a")}); hutch.KindOf(err) != hutch.Invalid {
		t.Errorf("a new sandbox: %v", err)
	}
}

func (b *bench) destroy(t *testing.T, id string) {
	t.Helper()
	if _, err := b.Destroy(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
}

// A layer is made once, for two or more sandboxes, and held by the running ones.
func TestLayersAreHeld(t *testing.T) {
	b, d := share(t)
	b.fork(t, 1)
	d.want(t, 0, 0)
	forks := b.fork(t, 3)
	d.want(t, 1, 0)
	for _, f := range forks[1:] {
		b.destroy(t, f.ID)
	}
	d.want(t, 1, 0)
	b.driver.Kill(forks[0].ID)
	b.until(t, forks[0].ID, hutch.Failed)
	d.want(t, 1, 1)

	snap, err := b.Snapshot(t.Context(), "parent", hutch.SnapshotRequest{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	b.create(t, hutch.CreateRequest{ID: "one", Snapshot: "kept"})
	b.create(t, hutch.CreateRequest{ID: "two", Snapshot: "kept", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	d.want(t, 2, 1)
	if err := b.DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	b.destroy(t, "one")
	b.until(t, "two", hutch.Stopped)
	d.want(t, 2, 2)
	if got := b.run(t, "two", "cat file"); got != "kept\n" {
		t.Errorf("woken it says %q", got)
	}
}

// If a layer turns out to be impossible, copies have their own files.
func TestLayersThatCannotBe(t *testing.T) {
	for _, refuse := range []bool{true, false} {
		t.Run(fmt.Sprint("refuse=", refuse), func(t *testing.T) {
			b, d := share(t)
			none := hutch.Errorf(hutch.Unsupported, "none here")
			if refuse {
				d.refuse = none
			} else {
				d.fail = none
			}
			for _, f := range b.fork(t, 2) {
				b.destroy(t, f.ID)
			}
			if d.closed != d.made {
				t.Errorf("%d of %d layers were closed", d.closed, d.made)
			}
		})
	}
}

// A create that fails releases the layer.
func TestLayerOfAFailedCreate(t *testing.T) {
	b, d := share(t)
	d.fail = errors.New("broken")
	if _, err := b.Fork(t.Context(), "parent", hutch.ForkRequest{Count: 2}); err == nil {
		t.Fatal("it was forked")
	}
	if d.made == 0 || d.closed != d.made {
		t.Errorf("%d of %d layers were closed", d.closed, d.made)
	}
}

// Copies that wait in the pool hold the layer as sandboxes do. A sandbox that is made from such a copy then holds the
// layer.
func TestLayersOfThePool(t *testing.T) {
	b, d := share(t)
	b.end(t)
	b.opt.Pool = engine.Pool{Max: 4, Room: 1 << 30}
	b.boot(t)
	if _, err := b.Snapshot(t.Context(), "parent", hutch.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		b.create(t, hutch.CreateRequest{ID: id, Snapshot: "kept"})
	}
	b.ready(t, 2)
	b.create(t, hutch.CreateRequest{ID: "three", Snapshot: "kept"})
	if k := b.PoolState().Kinds[0]; k.Hits != 1 {
		t.Errorf("%+v", k)
	}
	b.destroy(t, "one")
	b.destroy(t, "two")
	if err := b.DeleteSnapshot(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	b.ready(t, 0)
	if got := b.run(t, "three", "cat file; stat -c %s large"); got != "kept\n5000000\n" {
		t.Errorf("it says %q", got)
	}
	b.destroy(t, "three")
	for end := time.Now().Add(20 * time.Second); d.open() > 0; time.Sleep(time.Millisecond) { // the pool removes its last copies in the background
		if time.Now().After(end) {
			t.Fatalf("%d layers are open", d.open())
		}
	}
	d.want(t, 1, 1)
}

func (d *sharing) open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made - d.closed
}

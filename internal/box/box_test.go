package box_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/driver"
	"hutch/internal/snapshots"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// named is an instance that has only an id.
type named struct{ driver.Instance }

func (*named) ID() string            { return "instance" }
func (*named) Handle() driver.Handle { return nil }

// bench is a box with the records that it wrote to disk and the number of calls of Due.
type bench struct {
	*box.Box
	saved  []store.Record
	broken error
	due    atomic.Int32
	moves  atomic.Int32 // changes of what callers see
	uses   atomic.Int32
	inst   *named
	agent  *wire.Client
}

func start(t *testing.T, v hutch.Sandbox) *bench {
	t.Helper()
	b := &bench{inst: &named{}, agent: wire.NewClient(nil, "")}
	v.ID, v.Status, v.CreatedAt, v.LastUsedAt = "sb", hutch.Creating, time.Now(), time.Now()
	b.Box = box.New(store.Record{Sandbox: v, Key: "sb"}, box.Options{
		Save: func(_ context.Context, r store.Record) error {
			if b.broken == nil {
				b.saved = append(b.saved, r)
			}
			return b.broken
		},
		Due: func() { b.due.Add(1) }, Moved: func() { b.moves.Add(1) }, Uses: &b.uses,
	})
	t.Cleanup(b.Disarm)
	return b
}

// run starts a box that runs.
func run(t *testing.T, v hutch.Sandbox) *bench {
	t.Helper()
	b := start(t, v)
	if err := b.CommitRun(t.Context(), b.inst, b.agent, ""); err != nil {
		t.Fatal(err)
	}
	return b
}

// A status changes on disk first: if the record cannot be written, nothing changes.
func TestDiskFirst(t *testing.T) {
	b := start(t, hutch.Sandbox{})
	b.broken = errors.New("the disk is full")
	if err := b.CommitRun(t.Context(), b.inst, b.agent, ""); !errors.Is(err, b.broken) || b.Status() != hutch.Creating || b.Instance() != nil {
		t.Errorf("created: %v, %s", err, b.Status())
	}
	b = run(t, hutch.Sandbox{})
	_, _, since := b.LastUse()
	if !b.Detach(nil, since) {
		t.Fatal("an idle box is not detached")
	}
	b.broken = errors.New("the disk is full")
	if err := b.CommitSleep(t.Context(), hutch.Stopped, ""); !errors.Is(err, b.broken) || b.Status() != hutch.Running {
		t.Errorf("stopped: %v, %s", err, b.Status())
	}
	if err := b.Update(t.Context(), func(r *store.Record) { r.Sandbox.KeepAlive = true }); !errors.Is(err, b.broken) || b.Record().Sandbox.KeepAlive {
		t.Errorf("updated: %v", err)
	}
	b.broken = nil
	if err := b.CommitSleep(t.Context(), hutch.Stopped, ""); err != nil || b.Status() != hutch.Stopped || b.saved[len(b.saved)-1].Sandbox.Status != hutch.Stopped {
		t.Errorf("stopped: %v, %s", err, b.Status())
	}
}

// A box that is in use, or was used since the work began, cannot be detached. A detached box returns no agent until it
// is attached.
func TestDetach(t *testing.T) {
	b := run(t, hutch.Sandbox{})
	_, _, since := b.LastUse()
	if b.BeginUse() != b.agent || b.uses.Load() != 1 {
		t.Fatal("no use of a running box begins")
	}
	if b.Detach(nil, since) {
		t.Error("a box in use was detached")
	}
	time.Sleep(time.Microsecond)
	b.EndUse()
	if b.Detach(nil, since) {
		t.Error("a box that was used meanwhile was detached")
	}
	_, _, since = b.LastUse()
	listing := &store.Listing{Processes: []hutch.Process{{ID: "p"}}}
	if !b.Detach(listing, since) || b.BeginUse() != nil || len(b.Sandbox().Processes) != 1 {
		t.Error("an idle box is not detached")
	}
	moves := b.moves.Load()
	b.Pause(b.inst, b.agent)
	if b.BeginUse() != nil || !b.Sandbox().Paused || b.moves.Load() != moves+1 {
		t.Errorf("a use of a paused box begins, or Moved was called %d times", b.moves.Load()-moves)
	}
	b.Attach(b.inst, b.agent)
	if b.moves.Load() != moves+2 {
		t.Errorf("at the end of a pause, Moved had been called %d times", b.moves.Load()-moves)
	}
	if b.BeginUse() != b.agent || b.Sandbox().Paused || len(b.Sandbox().Processes) != 0 {
		t.Error("no use of an attached box begins")
	}
	b.EndUse()
	if b.uses.Load() != 0 {
		t.Errorf("%d uses are under way", b.uses.Load())
	}
}

// The record of a destroyed box is not written again. If its record cannot be removed, the box is not destroyed.
func TestGoneIsNotWritten(t *testing.T) {
	b := run(t, hutch.Sandbox{})
	broken := errors.New("the disk is broken")
	if err := b.Destroy("", func() error { return broken }); !errors.Is(err, broken) || b.Gone() {
		t.Fatalf("%v, gone %v", err, b.Gone())
	}
	if err := b.Destroy("", func() error { return nil }); err != nil || !b.Gone() || b.BeginUse() != nil {
		t.Fatalf("%v, gone %v", err, b.Gone())
	}
	n := len(b.saved)
	if err := b.Save(t.Context()); err != nil || len(b.saved) != n {
		t.Errorf("%d records after the end, %v", len(b.saved)-n, err)
	}
}

// Only the moves of the package comment are allowed.
func TestMoves(t *testing.T) {
	b := run(t, hutch.Sandbox{})
	if _, ok := b.Fail(&named{Instance: b.inst}, ""); ok {
		t.Error("failed with an instance that is not its own")
	}
	if agent, ok := b.Fail(b.inst, "dead"); !ok || agent != b.agent || b.Status() != hutch.Failed {
		t.Errorf("%v, %s", ok, b.Status())
	}
	defer func() {
		if recover() == nil {
			t.Error("a failed box went to sleep")
		}
		if b.Status() != hutch.Failed {
			t.Errorf("it is %s", b.Status())
		}
	}()
	b.CommitSleep(t.Context(), hutch.Hibernated, "")
}

// layer counts how often it was closed. It uses the box while it is closed, which shows that no lock is held then.
type layer struct {
	driver.Layer
	close func()
}

func (l layer) Close() error { l.close(); return nil }

func TestBaseIsReleasedOnce(t *testing.T) {
	var base snapshots.Base
	var b *bench
	closed := 0
	l := layer{close: func() { closed++; b.Record() }}
	if _, err := base.Hold(func() (driver.Layer, error) { return l, nil }); err != nil {
		t.Fatal(err)
	}
	b = start(t, hutch.Sandbox{})
	b.SetBase(&base)
	b.CommitRun(t.Context(), b.inst, b.agent, "")
	b.Fail(b.inst, "dead")
	b.CommitRun(t.Context(), b.inst, b.agent, "")
	b.Fail(b.inst, "dead")
	if closed != 1 {
		t.Errorf("the layer was closed %d times", closed)
	}
}

// The alarm goes off after the idle time or at the end of the lifetime, whichever is
// first, and not while the box is in use.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, hutch.Sandbox{SleepAfter: 60})
		due := func(after time.Duration, want box.Deadline, times int32) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := b.Due(time.Now()); got != want || b.due.Load() != times {
				t.Errorf("due: %v (%d times), want %v (%d)", got, b.due.Load(), want, times)
			}
		}
		due(59*time.Second, box.NotDue, 0)
		b.BeginUse()
		due(time.Hour, box.NotDue, 1)
		b.EndUse()
		due(59*time.Second, box.NotDue, 1)
		due(time.Second, box.Idle, 2)
		b.Rearm(time.Now(), true)
		due(59*time.Second, box.NotDue, 2)
		end := time.Now().Add(30 * time.Second)
		b.Update(t.Context(), func(r *store.Record) { r.Sandbox.KeepAlive, r.Sandbox.ExpiresAt = true, &end })
		due(29*time.Second, box.NotDue, 2)
		due(time.Second, box.Expired, 3)
	})
}

// gateway counts the traffic through it.
type gateway struct {
	box.Gateway
	closed bool
}

func (*gateway) Traffic() hutch.Traffic { return hutch.Traffic{Sent: 7, Open: 1, Denied: 3} }
func (g *gateway) Close()               { g.closed = true }

func TestGateway(t *testing.T) {
	b := run(t, hutch.Sandbox{})
	g, made := &gateway{}, 0
	for range 2 {
		got, err := b.OpenGateway(func() (box.Gateway, error) {
			made++
			b.Save(t.Context()) // the maker of a gateway can call methods of the box
			return g, nil
		})
		if err != nil || got != g || made != 1 {
			t.Errorf("%v, %v, made %d times", got, err, made)
		}
	}
	if u := b.Used(); u.NetworkSent != 7 || b.Traffic().Open != 0 || b.Denials() != 3 || !b.Unsaved() {
		t.Errorf("its traffic is not counted: %+v", u)
	}
	late := run(t, hutch.Sandbox{})
	lost := &gateway{}
	if got, err := late.OpenGateway(func() (box.Gateway, error) {
		late.Destroy("", func() error { return nil })
		return lost, nil
	}); got != nil || err != nil || !lost.closed {
		t.Errorf("the gateway of a box that went meanwhile: %v, %v, closed %v", got, err, lost.closed)
	}
}

func TestSecretNames(t *testing.T) {
	b := run(t, hutch.Sandbox{})
	if !b.RequestSecrets([]string{"KEY=name", "OTHER"}) || b.RequestSecrets([]string{"name"}) {
		t.Error("new names are not told from old ones")
	}
	if names := b.SecretNames(); !slices.Equal(names, []string{"name", "OTHER"}) {
		t.Errorf("names: %q", names)
	}
}

// Awaited reports a caller that waits to use the box, so that a hibernation can be cancelled for it.
func TestLockToUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, hutch.Sandbox{})
		b.Lock(t.Context())
		go func() {
			b.LockToUse(t.Context())
			b.Unlock()
		}()
		synctest.Wait()
		if !b.Awaited() {
			t.Error("no caller seems to wait")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("two have the lock: %v", err)
		}
		b.Unlock()
		synctest.Wait()
		if b.Awaited() {
			t.Error("a caller still seems to wait")
		}
	})
}

// A caller that destroys a box does not wait for the work of other callers: neither for that of the lock's holder, nor
// for that of callers who get the lock earlier.
func TestLockToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, hutch.Sandbox{})
		b.Lock(t.Context())
		work := func(begin func(context.CancelFunc)) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin(cancel)
			<-ctx.Done()
			b.GiveWayToEnd(nil)
			b.Unlock()
		}
		sleep := func(cancel context.CancelFunc) { b.BeginSleep(cancel) }
		for range 3 {
			for _, begin := range []func(context.CancelFunc){sleep, b.GiveWayToEnd} {
				go func() {
					b.Lock(t.Context())
					work(begin)
				}()
			}
		}
		synctest.Wait()
		go work(b.GiveWayToEnd)
		synctest.Wait()
		began := time.Now()
		if err := b.LockToEnd(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("the lock came after %v, %v", time.Since(began), err)
		}
		cancelled := false
		b.GiveWayToEnd(func() { cancelled = true })
		if cancelled {
			t.Error("work is cancelled for a caller that has the lock")
		}
		b.Unlock()
	})
}

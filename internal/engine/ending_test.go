package engine_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/engine"
	"hutch/internal/membudget"
	"hutch/internal/volume"
)

// stuckVolumes are volumes whose saves never end, except the last save. Programs in a sandbox can cause that.
type stuckVolumes struct{ *volume.Store }

func (stuckVolumes) Save(ctx context.Context, _, _ string, _ func(io.Writer) error) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= 2*time.Minute { // only the last save has so little time
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func withStuckVolumes(t *testing.T) *bench {
	t.Helper()
	s, err := volume.Open(t.TempDir(), volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create("", hutch.VolumeRequest{Name: "data", Quota: 1}); err != nil {
		t.Fatal(err)
	}
	return start(t, func(o *engine.Options) { o.Volumes = stuckVolumes{s} })
}

// delay makes several callers wait for endless work on a sandbox.
func (b *bench) delay(t *testing.T, id string) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if i%2 == 0 {
				if v, err := b.Hibernate(t.Context(), id, hutch.HibernateRequest{FilesOnly: true}); err == nil {
					t.Errorf("it was put to sleep: %s", v.Status)
				}
			} else {
				b.Destroy(t.Context(), id, false) // the last of these calls finds no sandbox
			}
		})
	}
	return all.Wait
}

// TestNoWorkOutlivesTheLifetime: a sandbox ends when its lifetime does, however many callers wait to put it to sleep or
// to destroy it, and however much its programs slow that down.
func TestNoWorkOutlivesTheLifetime(t *testing.T) {
	b := withStuckVolumes(t)
	began := time.Now()
	b.mounted(t, "a", func(r *hutch.CreateRequest) { r.Timeout, r.SleepAfter = 3, 1 })
	wait := b.delay(t, "a")
	b.until(t, "a", hutch.Destroyed)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it lived for %v", took)
	}
	wait()
}

// TestForcedDestroyWaitsForNoWork: a destroy with force does not wait for such callers either.
func TestForcedDestroyWaitsForNoWork(t *testing.T) {
	b := withStuckVolumes(t)
	b.mounted(t, "a", nil)
	wait := b.delay(t, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	time.Sleep(100 * time.Millisecond) // by then some of them wait; nothing reports that
	if _, err := b.Destroy(ctx, "a", true); err != nil {
		t.Errorf("destroy: %v", err)
	}
	wait()
}

// TestUnwokenForADestroy: a destroy with force ends a wake. The caller that requested the wake gets the error that the
// sandbox is gone only if it is gone.
func TestUnwokenForADestroy(t *testing.T) {
	waking, ended, goOn := make(chan bool), make(chan bool), make(chan bool)
	b := start(t, func(o *engine.Options) {
		o.Waking = func(ctx context.Context, _, _ string) (func(), error) {
			waking <- true
			<-ctx.Done()
			ended <- true
			<-goOn
			return nil, context.Cause(ctx)
		}
	})
	b.create(t, hutch.CreateRequest{ID: "a"})
	if _, err := b.Hibernate(t.Context(), "a", hutch.HibernateRequest{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	woken, destroyed := make(chan error), make(chan error)
	begin := func(ctx context.Context) {
		go func() {
			_, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil)
			woken <- err
		}()
		<-waking
		go func() {
			_, err := b.Destroy(ctx, "a", true)
			destroyed <- err
		}()
		<-ended
	}
	ctx, leave := context.WithCancel(t.Context())
	begin(ctx)
	leave()
	if err := <-destroyed; !errors.Is(err, context.Canceled) {
		t.Errorf("a destroy that was cancelled: %v", err)
	}
	goOn <- true
	if err := <-woken; hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("the sandbox is still there, and the answer is %v", err)
	}
	begin(t.Context())
	time.Sleep(100 * time.Millisecond) // by then it waits for the lock; nothing reports that
	goOn <- true
	if err := <-destroyed; err != nil {
		t.Error(err)
	}
	if err := <-woken; hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("the sandbox is gone, and the answer is %v", err)
	}
}

// TestResumableCommandIsCharged: the text of a command that outlives its request counts as memory of its owner until it
// has ended.
func TestResumableCommandIsCharged(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.ExecGrace = 3 * time.Second })
	b.create(t, hutch.CreateRequest{ID: "a"})
	memory := membudget.New(1000, 1000)
	account, free := memory.Open("")
	account.Take(600)
	ctx, leave := context.WithCancel(caller.With(t.Context(), caller.Caller{Budget: account}))
	defer leave()
	_, err := b.Exec(ctx, "a", hutch.ExecRequest{Command: "sleep 600", Resumable: true, Started: func(string) { leave() }}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	free()
	other, freeOther := memory.Open("")
	defer freeOther()
	if other.Take(600) {
		t.Error("the request of a command that runs is not charged")
	}
	for end := time.Now().Add(20 * time.Second); !other.Take(600); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request of a command that has ended is still charged")
		}
	}
}

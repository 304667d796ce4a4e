package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
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

// ready waits until so many places are ready.
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

// Whoever races for the places of the pool, each has one alone.
func TestPoolGivesToOneAlone(t *testing.T) {
	b := pooled(t, engine.Pool{Max: 8, Min: 8})
	var all sync.WaitGroup
	homes := make([]string, 24)
	for i := range homes {
		all.Go(func() {
			sb, err := b.Create(t.Context(), hutch.CreateRequest{ID: fmt.Sprint("racer-", i)})
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
	if s := b.PoolState(); s.Hits < 8 || s.Hits+s.Misses != 24 {
		t.Errorf("%+v", s)
	}
}

func TestPoolSkipsTheDead(t *testing.T) {
	var mu sync.Mutex
	var places []string
	b := start(t, func(o *engine.Options) { o.Pool = engine.Pool{Max: 2, Min: 0} })
	b.driver.Break(fake.Faults{Create: func(id string) error {
		mu.Lock()
		defer mu.Unlock()
		places = append(places, id)
		return nil
	}})
	for i := range 3 { // so that some are wanted
		b.create(t, hutch.CreateRequest{ID: fmt.Sprint("first-", i)})
	}
	b.ready(t, 2)
	mu.Lock()
	for _, place := range places {
		if strings.HasPrefix(place, "w-") {
			b.driver.Kill(place)
		}
	}
	mu.Unlock()
	b.create(t, hutch.CreateRequest{ID: "lives"})
	if out := b.run(t, "lives", "echo yes"); out != "yes\n" {
		t.Errorf("it says %q", out)
	}
	b.ready(t, 2)
}

// A place that cannot be used after all costs its sandbox time and nothing else.
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
		t.Errorf("%d places were left (%v)", n, err)
	}
	b.boot(t)
}

func TestPoolGivesWayToMemory(t *testing.T) {
	var short atomic.Bool
	b := pooled(t, engine.Pool{Max: 4, Min: 3, Short: short.Load})
	short.Store(true)
	b.create(t, hutch.CreateRequest{ID: "one"}) // the pool is looked at
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

// changing is an image that has another environment from some moment on.
func changing(stale *atomic.Bool) func(context.Context, string) (image.Root, error) {
	return func(context.Context, string) (image.Root, error) {
		if stale.Load() {
			return image.Root{Env: []string{"AGE=new"}}, nil
		}
		return image.Root{Env: []string{"AGE=old"}}, nil
	}
}

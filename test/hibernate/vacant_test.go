package hibernate

import (
	"context"
	"path/filepath"
	"testing"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// vacant waits until an empty instance is ready for something that was saved.
func (r room) vacant(t *testing.T) {
	t.Helper()
	r.pool(t, func(p hutch.PoolState) bool { return p.Vacant > 0 })
}

// A saved sandbox continues in an instance that was prepared in advance, again and again, and keeps its identity.
func TestContinuesInWaitingInstance(t *testing.T) {
	t.Parallel()
	var r room
	r.Engine = hutchtest.Engine(t, "gvisor", func(o *engine.Options) {
		r.dir, o.Pool = o.Dir, engine.Pool{Max: 3, Min: 1}
	})
	id, _ := r.sleeper(t, hutch.CreateRequest{ID: "sleeper", Env: map[string]string{"WHOSE": "mine"}})
	for _, want := range []string{"2", "3"} {
		r.until(t, id, hutch.Hibernated)
		r.vacant(t)
		if got := r.run(t, id, count+"; hostname; echo $WHOSE"); got != want+"\nsleeper\nmine" {
			t.Errorf("it wakes as %q", got)
		}
	}
	r.vacant(t)
	forks, err := r.Fork(t.Context(), id, hutch.ForkRequest{Env: map[string]string{"WHOSE": "its own"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.run(t, forks[0].ID, count+"; hostname; echo $WHOSE"); got != "4\n"+forks[0].ID+"\nits own" {
		t.Errorf("the fork says %q", got)
	}
	r.stayAwake(t, id)
	r.stayAwake(t, forks[0].ID)
	if left := r.left(t); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// A sandbox with other limits, for which no empty instance waits, also wakes.
func TestContinuesWhereNoneFits(t *testing.T) {
	t.Parallel()
	var r room
	r.Engine = hutchtest.Engine(t, "gvisor", func(o *engine.Options) { o.Pool = engine.Pool{Max: 3, Min: 1} })
	r.vacant(t)
	id, _ := r.sleeper(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 300}})
	r.until(t, id, hutch.Hibernated)
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
	if r.PoolState().Vacant == 0 {
		t.Error("it took an instance of another size")
	}
}

// A new daemon finds a sandbox that continued in an instance from the pool, whatever name the instance has; also if the
// sandbox sleeps.
func TestFoundInFormerWaitingInstance(t *testing.T) {
	t.Parallel()
	dir := hutchtest.Dir(t)
	hutchtest.Driver(t, "gvisor", filepath.Join(dir, "gvisor")) // skips the test where the runtime does not work
	first := open(t, dir, "gvisor", func(o *engine.Options) { o.Pool = engine.Pool{Max: 3, Min: 1} })
	id, _ := first.sleeper(t, hutch.CreateRequest{})
	first.until(t, id, hutch.Hibernated)
	first.vacant(t)
	first.run(t, id, "true")
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := reopen(t, dir, "gvisor")
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
	r.until(t, id, hutch.Hibernated)
	if got := r.run(t, id, count); got != "3" {
		t.Errorf("the counter says %q", got)
	}
	if _, err := r.Destroy(t.Context(), id, true); err != nil {
		t.Error(err)
	}
	if left := append(r.left(t), r.kept(t)...); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

package pool

import (
	"testing"
	"time"

	"hutch"
)

// thing is an instance that is never dead.
type thing struct{ _ int }

func (*thing) Dead() bool { return false }

// A caller that asks for ever new kinds neither grows the pool nor keeps it from
// the kinds in use.
func TestKindsAreBounded(t *testing.T) {
	t.Parallel()
	usual, used, lately := Kind{Runtime: "usual"}, Kind{Runtime: "used"}, Kind{Runtime: "asked for lately"}
	p := New[*thing](Options{Max: 4}, map[Kind]int{usual: 1})
	p.Take(used)
	p.Take(used)
	p.Put(used, &thing{})
	for n := range 10 * maxKinds {
		p.Take(Kind{Limits: hutch.Limits{Memory: n + 100}})
		p.Take(lately)
	}
	if len(p.buckets) > maxKinds {
		t.Errorf("it knows of %d kinds", len(p.buckets))
	}
	for k, want := range map[Kind]int{usual: 1, used: 2, lately: 4} {
		if p.buckets[k] == nil || p.wantLocked(k, time.Now()) != want {
			t.Errorf("of %s it does not want %d", k.Runtime, want)
		}
	}
}

// Kinds that are always kept ready come first, however much is asked for of
// others.
func TestUsualKindsComeFirst(t *testing.T) {
	t.Parallel()
	usual, other := Kind{Runtime: "usual"}, Kind{Runtime: "other"}
	p := New[*thing](Options{Max: 8}, map[Kind]int{usual: 2})
	for range 8 {
		p.Take(other)
	}
	var order []string
	for k, ok := p.Lacks(); ok; k, ok = p.Lacks() {
		order = append(order, k.Runtime)
		p.Put(k, &thing{})
	}
	if len(order) != 8 || order[0] != "usual" || order[1] != "usual" || order[2] != "other" {
		t.Errorf("they are made in the order %q", order)
	}
}

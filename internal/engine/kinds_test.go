package engine

import (
	"testing"
	"time"

	"hutch"
)

// Who asks for ever new kinds does not grow the pool, and does not keep it from
// those that are in use.
func TestKindsAreBounded(t *testing.T) {
	t.Parallel()
	usual, used, lately := kind{runtime: "usual"}, kind{runtime: "used"}, kind{runtime: "asked for lately"}
	p := newPool(Pool{Max: 4, Min: 1}, map[kind]int{usual: 1})
	p.take(used)
	p.take(used)
	p.put(&spare{kind: used})
	for n := range 10 * maxKinds {
		p.take(kind{limits: hutch.Limits{Memory: n + 100}})
		p.take(lately)
	}
	if len(p.shelves) > maxKinds {
		t.Errorf("it knows of %d kinds", len(p.shelves))
	}
	for k, want := range map[kind]int{usual: 1, used: 2, lately: 4} {
		if p.shelves[k] == nil || p.wantLocked(k, time.Now()) != want {
			t.Errorf("of %s it does not want %d", k.runtime, want)
		}
	}
}

// However much is asked for of others, those come first that are ready always.
func TestUsualKindsComeFirst(t *testing.T) {
	t.Parallel()
	usual, other := kind{runtime: "usual"}, kind{runtime: "other"}
	p := newPool(Pool{Max: 8}, map[kind]int{usual: 2})
	for range 8 {
		p.take(other)
	}
	var order []string
	for k, ok := p.lacks(); ok; k, ok = p.lacks() {
		order = append(order, k.runtime)
		p.put(&spare{kind: k})
	}
	if len(order) != 8 || order[0] != "usual" || order[1] != "usual" || order[2] != "other" {
		t.Errorf("they are made in the order %q", order)
	}
}

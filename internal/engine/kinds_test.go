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

package pool

import (
	"errors"
	"slices"
	"testing"
	"time"

	"hutch"
)

// thing is an instance that is never dead.
type thing struct{ _ int }

func (*thing) Dead() bool { return false }

// A caller that requests ever new kinds neither grows the pool nor displaces the kinds in use.
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
		if p.buckets[k] == nil || p.wantsLocked(time.Now())[k] != want {
			t.Errorf("of %s it does not want %d", k.Runtime, want)
		}
	}
}

// Kinds that are always kept ready come first, however many requests other kinds have.
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

// A create from a template requests a copy and, if no copy is ready, a vacant instance. In a pool without room for
// both, copies displace vacant instances.
func TestCopiesComeBeforeVacant(t *testing.T) {
	t.Parallel()
	made := Kind{Image: "python", Snapshot: "template", Memory: true, Size: 30 << 20}
	vacant := Kind{Image: "python", Vacant: true}
	p := New[*thing](Options{Max: 4, Room: 1 << 30}, map[Kind]int{{Runtime: "usual"}: 1})
	for range 3 {
		p.Take(made)
		p.Take(vacant)
	}
	for range 3 {
		p.Put(vacant, &thing{})
	}
	if freed := p.Surplus(func(Kind, *thing) bool { return false }); len(freed) != 3 {
		t.Errorf("%d vacant instances give up their places, not 3", len(freed))
	}
	var order []string
	for k, ok := p.Lacks(); ok; k, ok = p.Lacks() {
		order = append(order, k.Runtime+k.Snapshot)
		if k.Snapshot != "" { // a copy is made in the background, while the keeper looks for another kind
			p.Copying(&k)
			if k, ok := p.Lacks(); ok && k.Vacant {
				t.Error("a vacant instance takes the place of a copy")
			}
			p.Copying(nil)
		}
		p.Put(k, &thing{})
	}
	if want := []string{"usual", "template", "template", "template"}; !slices.Equal(order, want) {
		t.Errorf("they are made in the order %q", order)
	}

	p.Failed(made, errors.New("no such snapshot"))
	for range 3 {
		p.Take(made)
	}
	if n := p.wantsLocked(time.Now())[vacant]; n != 3 {
		t.Errorf("copies that cannot be made leave %d places for vacant instances, not 3", n)
	}
}

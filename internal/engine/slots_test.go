package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSilentSandboxesDelayNoOther: sandboxes whose agents do not answer do not delay requests for the records of other
// sandboxes, however many silent sandboxes an owner has.
func TestSilentSandboxesDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		all := make([]int, 101)
		visit(all, func(i int, _ int) {
			if i < 100 {
				time.Sleep(30 * time.Second) // until its time limit
				return
			}
			if waited := time.Since(began); waited > 3*time.Second {
				t.Errorf("the last of 101 waited %v", waited)
			}
		})
	})
}

// TestSlots: as many tasks work at once as there are slots, and each slot is released only once.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(slots, 2)
		began := time.Now()
		slow, quick := slots.take(time.Second), slots.take(time.Second)
		quick()
		quick = slots.take(time.Second)
		if waited := time.Since(began); waited != 0 || len(slots) != 2 {
			t.Errorf("it waited %v with %d taken", waited, len(slots))
		}
		slots.take(time.Second)() // in the slot of a slow task
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it waited %v", waited)
		}
		slow()
		quick()
		if len(slots) != 0 {
			t.Errorf("%d are taken", len(slots))
		}
	})
}

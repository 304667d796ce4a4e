package conversation

import (
	"fmt"
	"testing"

	"hutch"
)

// TestFeedIsShared: no owner displaces another owner's events, or uses up the listeners that are allowed in all.
func TestFeedIsShared(t *testing.T) {
	f := newFeed()
	f.publish("ada", "run.started", nil)
	for range 3 * maxEvents {
		f.publish("eve", "run.started", nil)
	}
	for owner, want := range map[string]int{"ada": 1, "eve": maxEvents} {
		if list, _, _, _ := f.after(0, owner); len(list) != want {
			t.Errorf("%d events of %s are remembered, not %d", len(list), owner, want)
		}
	}
	for i := range maxOfOwner + 1 {
		if err := f.enter("eve"); (err == nil) != (i < maxOfOwner) || err != nil && hutch.KindOf(err) != hutch.Exhausted {
			t.Errorf("eve's listener %d: %v", i, err)
		}
	}
	if err := f.enter("ada"); err != nil {
		t.Error(err)
	}
	f.exit("eve")
	if err := f.enter("eve"); err != nil {
		t.Error(err)
	}
	for i := range 2 * maxOwners {
		f.publish(fmt.Sprint(i), "run.started", nil)
	}
	if len(f.recent) > maxOwners {
		t.Errorf("events of %d owners are remembered", len(f.recent))
	}
}

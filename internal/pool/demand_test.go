package pool

import (
	"testing"
	"time"
)

func TestDemand(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var d demand
	d.note(now)
	if n := d.most(now); n != 0 {
		t.Errorf("asked for once: %d", n)
	}
	for range 19 {
		d.note(now.Add(time.Second))
	}
	d.note(now.Add(time.Minute))
	if n := d.most(now.Add(time.Minute)); n != 20 {
		t.Errorf("after a burst of 20: %d", n)
	}
	if n := d.most(now.Add(demandTime + 30*time.Second)); n != 0 || len(d) != 1 {
		t.Errorf("when it is long ago: %d of %v", n, d)
	}
}

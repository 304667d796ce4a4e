package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hutch/internal/box"
)

// However many slow sandboxes one owner has, the sandboxes of other owners are copied right after its first one.
func TestCheckpointsOfSlowSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []box.Name
		for i := range 50 {
			names = append(names, box.Name{Owner: "a-hostile", ID: fmt.Sprint(i)})
		}
		for i := range 20 {
			names = append(names, box.Name{Owner: fmt.Sprint("other-", i%4), ID: fmt.Sprint(i)})
		}
		queue := newCheckpointQueue(names)
		began := time.Now()
		others := make(chan time.Duration, len(names))
		var all sync.WaitGroup
		for range checkpointsAtOnce {
			all.Go(func() {
				for name, done := queue.next(); done != nil; name, done = queue.next() {
					if name.Owner == "a-hostile" {
						time.Sleep(checkpointTime)
					} else {
						time.Sleep(time.Second)
						others <- time.Since(began)
					}
					done()
				}
			})
		}
		all.Wait()
		var last time.Duration
		for range 20 {
			last = max(last, <-others)
		}
		if last > 20*time.Second {
			t.Errorf("the last of the others was copied after %v", last)
		}
	})
}

// The sandboxes of one owner are copied in order, by all workers.
func TestCheckpointQueueOfOneOwner(t *testing.T) {
	queue := newCheckpointQueue([]box.Name{{ID: "a"}, {ID: "b"}, {ID: "c"}})
	var ids []string
	for name, done := queue.next(); done != nil; name, done = queue.next() {
		ids = append(ids, name.ID)
	}
	if !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("%q", ids)
	}
}

package instance

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// begin takes places for starts of an owner, and reports how long each waited.
func begin(t *testing.T, l *starts, owner string, n int) (ends []func(), waited time.Duration) {
	t.Helper()
	began := time.Now()
	for range n {
		end, err := l.take(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	return ends, time.Since(began)
}

// TestStartsThatHang: sandboxes whose agents never answer while their memory is restored delay the starts of other
// owners only for a moment, however many there are.
func TestStartsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStarts(4, slowStart)
		for range 50 {
			go l.take(t.Context(), "eve")
		}
		synctest.Wait()
		ends, waited := begin(t, l, "ada", 4)
		if waited > slowStart {
			t.Errorf("four starts of another owner waited %v", waited)
		}
		if len(l.running) != 8 {
			t.Errorf("%d starts run", len(l.running))
		}
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if len(l.running) != 4 || l.free != 0 {
			t.Errorf("%d starts run, with %d places", len(l.running), l.free)
		}
	})
}

// TestLentPlaces: however starts that lend and borrow places end, all places are free afterwards.
func TestLentPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			l := newStarts(1, slowStart)
			var ends []func()
			for _, owner := range []string{"ada", "bob", "eve"} {
				end, _ := begin(t, l, owner, 1)
				ends = append(ends, end...)
			}
			if len(l.running) != 3 {
				t.Errorf("%d run", len(l.running))
			}
			for _, i := range order {
				ends[i]()
			}
			if l.free != 1 || len(l.running)+len(l.waiting)+len(l.turns) != 0 {
				t.Errorf("ended in the order %v: %d places, %d run", order, l.free, len(l.running))
			}
		}
	})
}

// TestStartsOfOneOwner: an owner's own starts never exceed the limit, however slow they are, and begin in their order.
func TestStartsOfOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStarts(2, slowStart)
		ends, _ := begin(t, l, "", 2)
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				if end, err := l.take(t.Context(), ""); err == nil {
					order <- i
					end()
				}
			}()
			synctest.Wait()
		}
		time.Sleep(10 * slowStart)
		if len(order) != 0 || len(l.running) != 2 {
			t.Errorf("%d starts run", len(l.running))
		}
		ends[0]()
		synctest.Wait()
		for i := range 3 {
			if got := <-order; got != i {
				t.Errorf("%d began in place of %d", got, i)
			}
		}
		ends[1]()
		if l.free != 2 || len(l.running)+len(l.waiting)+len(l.turns) != 0 {
			t.Errorf("%d places, %d run, %d wait", l.free, len(l.running), len(l.waiting))
		}
	})
}

// TestStartsTakeTurns: an owner with one start does not wait for all that another owner has in the queue.
func TestStartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStarts(1, slowStart)
		work := func(owner string) {
			if end, err := l.take(t.Context(), owner); err == nil {
				time.Sleep(time.Second)
				end()
			}
		}
		for range 20 {
			go work("eve")
		}
		synctest.Wait()
		go work("eve")
		ends, waited := begin(t, l, "ada", 1)
		if waited > time.Second {
			t.Errorf("it waited %v", waited)
		}
		ends[0]()
		time.Sleep(time.Minute)
	})
}

// TestStartThatIsCancelled: a caller that leaves frees its place in the queue.
func TestStartThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStarts(1, slowStart)
		ends, _ := begin(t, l, "ada", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.take(ctx, "bob"); err == nil || len(l.waiting) != 0 {
			t.Errorf("%v, %d wait", err, len(l.waiting))
		}
		ends[0]()
		if l.free != 1 {
			t.Errorf("%d places", l.free)
		}
	})
}

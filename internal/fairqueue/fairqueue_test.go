package fairqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const slow = 5 * time.Second

// begin takes slots for jobs of an owner, and reports how long they waited.
func begin(t *testing.T, l *Queue, owner string, n int) (ends []func(), waited time.Duration) {
	t.Helper()
	began := time.Now()
	for range n {
		end, err := l.Take(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	return ends, time.Since(began)
}

// TestJobsThatHang: however many jobs never end, they delay jobs of other owners only for a moment.
func TestJobsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(4, 0, slow)
		for range 50 {
			go l.Take(t.Context(), "eve")
		}
		synctest.Wait()
		ends, waited := begin(t, l, "ada", 4)
		if waited > slow {
			t.Errorf("four jobs of another owner waited %v", waited)
		}
		if len(l.running) != 8 {
			t.Errorf("%d jobs run", len(l.running))
		}
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if len(l.running) != 4 || l.free != 0 {
			t.Errorf("%d jobs run, with %d slots", len(l.running), l.free)
		}
	})
}

// TestLentSlots: however jobs that lend and borrow slots end, all slots are free afterwards.
func TestLentSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			l := New(1, 0, slow)
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
				t.Errorf("ended in the order %v: %d slots, %d run", order, l.free, len(l.running))
			}
		}
	})
}

// TestJobsOfOneOwner: an owner's own jobs never exceed the limit, however slow they are, and begin in their order.
func TestJobsOfOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(2, 0, slow)
		ends, _ := begin(t, l, "", 2)
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				if end, err := l.Take(t.Context(), ""); err == nil {
					order <- i
					end()
				}
			}()
			synctest.Wait()
		}
		time.Sleep(10 * slow)
		if len(order) != 0 || len(l.running) != 2 {
			t.Errorf("%d jobs run", len(l.running))
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
			t.Errorf("%d slots, %d run, %d wait", l.free, len(l.running), len(l.waiting))
		}
	})
}

// TestOwnersTakeTurns: an owner with one job does not wait for all that another owner has in the queue.
func TestOwnersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 0, slow)
		work := func(owner string) {
			if end, err := l.Take(t.Context(), owner); err == nil {
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

// TestJobThatIsCancelled: a caller that leaves no longer waits in the queue.
func TestJobThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 0, slow)
		ends, _ := begin(t, l, "ada", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Take(ctx, "bob"); err == nil || len(l.waiting) != 0 {
			t.Errorf("%v, %d wait", err, len(l.waiting))
		}
		ends[0]()
		if l.free != 1 {
			t.Errorf("%d slots", l.free)
		}
	})
}

// TestMostJobs: however many owners have slow jobs, the limit on jobs is never exceeded, and an owner without a running
// job is next.
func TestMostJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 3, slow)
		var first func()
		for i, owner := range []string{"a", "b", "c"} {
			end, _ := begin(t, l, owner, 1)
			if i == 0 {
				first = end[0]
			}
			go l.Take(t.Context(), owner)
		}
		time.Sleep(10 * slow)
		if len(l.running) != 3 {
			t.Fatalf("%d jobs run", len(l.running))
		}
		begun := make(chan struct{})
		go func() {
			if _, err := l.Take(t.Context(), "ada"); err == nil {
				close(begun)
			}
		}()
		synctest.Wait()
		first()
		<-begun
		if len(l.running) != 3 {
			t.Errorf("%d jobs run", len(l.running))
		}
	})
}

// TestManyOwnersWithSlowJobs: however many owners have jobs that never end, another owner waits only until one of these
// jobs is slow. A job that is not slow is never ended. Owners that start jobs again and again do not end a job of an
// owner that has used less time than they have.
func TestManyOwnersWithSlowJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		l := New(2, most, slow)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 3 * most { // each owner starts its job again when it was ended
			go func() {
				for ctx.Err() == nil {
					job, end, err := l.Begin(ctx, string(rune('a'+i)))
					if err != nil {
						return
					}
					began := time.Now()
					<-job.Done()
					if took := time.Since(began); errors.Is(context.Cause(job), ErrShare) && took < slow {
						t.Errorf("a job was ended after %v", took)
					}
					end()
				}
			}()
		}
		time.Sleep(100 * slow)
		for range 20 { // small jobs
			began := time.Now()
			job, end, err := l.Begin(t.Context(), "ada")
			if waited := time.Since(began); err != nil || waited > slow {
				t.Errorf("waited %v, %v", waited, err)
			}
			time.Sleep(slow / 10)
			synctest.Wait()
			if job.Err() != nil || len(l.running) > most {
				t.Errorf("%v, %d run", context.Cause(job), len(l.running))
			}
			end()
			time.Sleep(slow)
		}
		job, end, err := l.Begin(t.Context(), "bob") // a long one
		if err != nil {
			t.Fatal(err)
		}
		if time.Sleep(8 * slow); job.Err() != nil {
			t.Errorf("a job of an owner that used less than all others was ended: %v", context.Cause(job))
		}
		end()
		cancel()
		synctest.Wait()
		if l.free != 2 || len(l.running)+len(l.waiting)+len(l.turns) != 0 {
			t.Errorf("%d slots, %d run, %d wait", l.free, len(l.running), len(l.waiting))
		}
		time.Sleep(1000 * slow)
		if _, end, err := l.Begin(t.Context(), "ada"); err == nil {
			end()
		}
		if len(l.used) > 0 {
			t.Errorf("the use of %d owners is never forgotten", len(l.used))
		}
	})
}

// TestJobThatCannotBeEnded: a job that was started with Take is not ended, however long others wait.
func TestJobThatCannotBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 2, slow)
		ends, _ := begin(t, l, "a", 1)
		more, _ := begin(t, l, "b", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 20*slow)
		defer cancel()
		if _, _, err := l.Begin(ctx, "ada"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		ends[0]()
		more[0]()
	})
}

package memguard

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hutch/internal/delay"
	"hutch/internal/linux/cgroup"
)

const mib = 1 << 20

var limits = LimitsOf(256 * mib)

// fake is a memory whose usage is a function of time. It records the actions of the guard.
type fake struct {
	mu          sync.Mutex // held by used and relieve, which run in parallel
	used        func() int64
	garbage     bool
	begun, done int
	collected   int
	limit       int64 // of the last End
}

func (f *fake) Read() (cgroup.MemoryReading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used := f.used()
	return cgroup.MemoryReading{Charged: used, Used: used}, nil
}
func (f *fake) Wait(ctx context.Context, last cgroup.MemoryReading, limit int64) {
	delay.Wait(ctx, Until(last.Used, limit))
}
func (f *fake) Begin()                          { f.begun++ }
func (f *fake) Collect() bool                   { f.collected++; return f.garbage }
func (f *fake) Raise(cgroup.MemoryReading) bool { return true }
func (f *fake) End(limit int64)                 { f.done++; f.limit = limit }

// run runs a guard for a while, and returns the calls of relieve and the error.
func run(d time.Duration, f *fake, relieve func(used int64, urgent bool) error) (calls int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	err = Run(ctx, f, limits, func(_ context.Context, used int64, urgent bool) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		calls++
		return true, relieve(used, urgent)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	return calls, err
}

// TestEnds: a program that grows without end is ended soon, with time left for its end, and not urgently. No other
// program is ended.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, base := time.Now(), int64(0)
		f := &fake{}
		f.used = func() int64 {
			if base > 0 {
				return base
			}
			return int64(time.Since(begin).Seconds() * fastest)
		}
		calls, err := run(time.Minute, f, func(used int64, urgent bool) error {
			if used < limits.Soft || used > limits.Hard-Headroom || urgent {
				t.Errorf("asked at %d MiB, urgent %v", used/mib, urgent)
			}
			base = 50 * mib
			return nil
		})
		if calls != 1 || err != nil || f.begun != f.done || f.limit != limits.Soft {
			t.Errorf("%d calls, %v; %+v", calls, err, f)
		}
	})
}

// TestUrgent: near the hard limit, the call of relieve is urgent, and an agent that cannot end programs is asked again.
func TestUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := limits.Hard - mib
		n := 0
		calls, err := run(time.Minute, &fake{used: func() int64 { return used }}, func(_ int64, urgent bool) error {
			if !urgent {
				t.Error("not urgent")
			}
			if n++; n < 3 {
				return errors.New("not now")
			}
			used = 0
			return nil
		})
		if calls != 3 || err != nil {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

// TestRests: memory that belongs to no program is tolerated below the hard limit, until it grows.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := limits.Soft + 20*mib
		f := &fake{used: func() int64 { return used }}
		calls, err := run(time.Minute, f, func(int64, bool) error { return nil })
		if calls != 1 || err != nil || f.limit != used+Tolerance {
			t.Errorf("%d calls, %v; %+v", calls, err, f)
		}
	})
}

// TestGivesUp: an instance that stays at its hard limit makes the guard give up after a while.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := run(time.Hour, &fake{used: func() int64 { return limits.Hard }}, func(int64, bool) error { return nil })
		if d := time.Since(begin); !errors.Is(err, errNoMemory) || d < easeTime || d > 2*easeTime {
			t.Errorf("%v after %v", err, d)
		}
	})
}

// TestCollects: if collecting garbage is enough, no program is ended; if there is no garbage, no time is lost.
func TestCollects(t *testing.T) {
	for _, garbage := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f, begin := &fake{garbage: garbage}, time.Now()
			f.used = func() int64 {
				if f.collected > 0 && garbage {
					return 0
				}
				return limits.Soft + mib
			}
			first := time.Duration(0)
			calls, err := run(time.Minute, f, func(int64, bool) error { first = time.Since(begin); return nil })
			if err != nil || (calls == 0) != garbage || first > 100*time.Millisecond {
				t.Errorf("garbage %v: %d calls, the first after %v, %v", garbage, calls, first, err)
			}
		})
	}
}

// TestNoGarbageEver: if there is never garbage to collect, the guard acts without a delay each time.
func TestNoGarbageEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, over := limits.Soft+mib, time.Now()
		f := &fake{used: func() int64 {
			if used == 0 && time.Since(over) > 50*time.Millisecond {
				used, over = limits.Soft+mib, time.Now()
			}
			return used
		}}
		calls, err := run(time.Second, f, func(int64, bool) error {
			if d := time.Since(over); d > 20*time.Millisecond {
				t.Errorf("asked %v after it was over the limit", d)
			}
			used, over = 0, time.Now()
			return nil
		})
		if calls < 3 || err != nil {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

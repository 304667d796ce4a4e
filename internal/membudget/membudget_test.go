package membudget

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestShares(t *testing.T) {
	t.Parallel()
	r := New(100, 60)
	first, end := r.Open("a")
	second, endSecond := r.Open("a")
	other, endOther := r.Open("b")
	for _, step := range []struct {
		tab  *Account
		n    int
		want bool
		why  string
	}{
		{first, 50, true, "within the share"},
		{second, 11, false, "over the owner's share"},
		{second, 10, true, "the rest of it"},
		{other, 41, false, "over the room of all"},
		{other, 40, true, "the rest of it"},
		{nil, 1 << 30, true, "of no request"},
	} {
		if got := step.tab.Take(step.n); got != step.want {
			t.Errorf("take %d: %v, %s", step.n, got, step.why)
		}
	}
	end()
	if !other.Take(20) || second.Take(31) {
		t.Error("what a request gave back is not there, or more than that")
	}
	endSecond()
	endOther()
	if other.Take(1) {
		t.Error("a request that is over takes more, which nothing would give back")
	}
	if r.sum != 0 || len(r.taken) != 0 {
		t.Errorf("all requests are over, and %d bytes are taken by %v", r.sum, r.taken)
	}
}

func TestTakeSpare(t *testing.T) {
	t.Parallel()
	r := New(100, 60)
	first, end := r.Open("a")
	defer end()
	other, endOther := r.Open("b")
	defer endOther()
	for _, step := range []struct {
		take func(int) bool
		n    int
		want bool
		why  string
	}{
		{first.TakeSpare, 31, false, "over half of the owner's share"},
		{first.TakeSpare, 30, true, "half of the share"},
		{first.Take, 10, true, "needed, and within the share"},
		{other.TakeSpare, 11, false, "over half of the total"},
		{other.TakeSpare, 10, true, "half of the total"},
		{(*Account)(nil).TakeSpare, 1 << 30, true, "of no request"},
	} {
		if got := step.take(step.n); got != step.want {
			t.Errorf("take %d: %v, %s", step.n, got, step.why)
		}
	}
}

// A call that outlives its request keeps the request's memory until it ends.
func TestHold(t *testing.T) {
	t.Parallel()
	r := New(100, 100)
	tab, end := r.Open("a")
	free := tab.Hold()
	tab.Take(60)
	end()
	if tab.Take(41) || !tab.Take(10) {
		t.Error("the memory of a request is given back under a call that continues")
	}
	free()
	if r.sum != 0 || tab.Take(1) {
		t.Errorf("the call has ended, and %d bytes are taken", r.sum)
	}
}

func TestNeverMoreThanThereIs(t *testing.T) {
	t.Parallel()
	r := New(1000, 1000)
	var held, most atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 200 {
				tab, end := r.Open("a")
				if tab.Take(100) {
					now := held.Add(100)
					for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
					}
					held.Add(-100)
				}
				end()
			}
		})
	}
	all.Wait()
	if most.Load() > 1000 {
		t.Errorf("%d bytes were held of 1000", most.Load())
	}
}

// TestTakeJSON: commas between values are charged, but not the commas in strings.
func TestTakeJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		``: 0, `{"a":1}`: 0, `[{},{},{}]`: 2 * aValue, `{"a":"1,2,3","b":"\\",",":"\",\""}`: 2 * aValue, `["`: 0, `["\`: 0,
	} {
		tab, end := New(1<<20, 1<<20).Open("a")
		if !tab.TakeJSON([]byte(text)) || tab.taken != want {
			t.Errorf("%s: %d bytes are taken, not %d", text, tab.taken, want)
		}
		end()
	}
	tab, end := New(10*aValue, 10*aValue).Open("a")
	defer end()
	if tab.TakeJSON([]byte(`[0,1,2,3,4,5,6,7,8,9,10,11]`)) || tab.taken != 0 {
		t.Error("more values were taken than there is room for")
	}
}

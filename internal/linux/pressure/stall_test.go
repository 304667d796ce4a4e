package pressure

import (
	"testing"
	"time"
)

func TestStall(t *testing.T) {
	t.Parallel()
	type second struct {
		waited float64 // seconds of waiting in that second
		enough bool    // there is memory
		kills  int
		want   bool
	}
	stalls := second{waited: 0.7}
	for name, seconds := range map[string][]second{
		"a first look":              {{waited: 1}, {}},
		"it waits for 3 seconds":    {stalls, stalls, stalls, {waited: 0.7, want: true}},
		"and as long again":         {stalls, stalls, stalls, {waited: 0.7, want: true}, stalls, stalls, {waited: 0.7, want: true}},
		"it works now and then":     {stalls, stalls, {waited: 0.1}, stalls, stalls, {waited: 0.1}, stalls},
		"there is memory":           {stalls, stalls, {waited: 0.7, enough: true}, stalls, stalls},
		"the kernel ends a process": {stalls, stalls, {waited: 0.7, kills: 1}, stalls, stalls},
	} {
		now, s, waited, kills := time.Now(), &Stall{}, time.Duration(0), 5
		for i, sec := range seconds {
			now = now.Add(time.Second)
			waited += time.Duration(sec.waited * float64(time.Second))
			kills += sec.kills
			if got := s.look(now, waited, !sec.enough, kills); got != sec.want {
				t.Errorf("%s: after %d seconds: %t", name, i, got)
			}
		}
	}
}

func TestWaited(t *testing.T) {
	t.Parallel()
	const psi = "some avg10=6.63 avg60=56.68 avg300=63.18 total=79216\nfull avg10=4.81 avg60=42.60 avg300=48.80 total=50123\n"
	if d, ok := total(psi); !ok || d != 50123*time.Microsecond {
		t.Errorf("%v, %t", d, ok)
	}
	for _, bad := range []string{"", "some avg10=6.63 avg60=56.68 avg300=63.18 total=79216\n", "full total=\n", "full total=x\n"} {
		if d, ok := total(bad); ok {
			t.Errorf("%q: %v", bad, d)
		}
	}
}

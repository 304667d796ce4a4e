package agent

import (
	"testing"

	"hutch/internal/wire"
)

// While there is time, a running program is not ended to free memory that it does not hold itself.
func TestChooseVictim(t *testing.T) {
	const mb = 1 << 20
	server := &victim{run: &running{}, all: true, pids: []int{10}, mapped: 20 * mb}
	state := &victim{run: &running{keeps: true}, all: true, pids: []int{20}, mapped: 130 * mb}
	small := &victim{run: &running{}, all: true, pids: []int{30}, mapped: 10 * mb}
	large := &victim{run: &running{}, all: true, pids: []int{30}, mapped: 400 * mb}
	for _, c := range []struct {
		name    string
		victims []*victim
		r       wire.Relieve
		want    *victim
	}{
		{"the greediest", []*victim{server, state, large}, wire.Relieve{Used: 600 * mb}, large},
		{"what an ended program held", []*victim{server, state, small}, wire.Relieve{Used: 600 * mb}, nil},
		{"the newest, when it is urgent", []*victim{server, state, small}, wire.Relieve{Used: 700 * mb, Urgent: true}, small},
		{"never what keeps state, for others' memory", []*victim{state}, wire.Relieve{Used: 700 * mb, Urgent: true}, nil},
		{"what keeps state, for its own", []*victim{server, state}, wire.Relieve{Used: 240 * mb}, state},
		{"nothing runs", nil, wire.Relieve{Used: 600 * mb, Urgent: true}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := choose(c.victims, c.r); got != c.want {
				t.Errorf("chose %+v, want %+v", got, c.want)
			}
		})
	}
}

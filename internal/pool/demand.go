package pool

import (
	"slices"
	"time"
)

// demand is the recent bursts of requests for a kind. A burst is a number of requests within a few seconds.
type demand []burst // oldest first

type burst struct {
	began time.Time
	n     int
}

const (
	burstTime  = 10 * time.Second
	demandTime = 10 * time.Minute // how long a burst is remembered
)

func (d *demand) note(now time.Time) {
	d.forget(now)
	if i := len(*d) - 1; i >= 0 && now.Sub((*d)[i].began) < burstTime {
		(*d)[i].n++
		return
	}
	*d = append(*d, burst{now, 1})
}

func (d *demand) forget(now time.Time) {
	*d = slices.DeleteFunc(*d, func(b burst) bool { return now.Sub(b.began) > demandTime })
}

func (d *demand) forgotten(now time.Time) bool {
	d.forget(now)
	return len(*d) == 0
}

// most returns the largest burst. It is 0 for a kind that was requested only once.
func (d *demand) most(now time.Time) int {
	d.forget(now)
	most, all := 0, 0
	for _, b := range *d {
		most, all = max(most, b.n), all+b.n
	}
	if all == 1 {
		return 0
	}
	return most
}

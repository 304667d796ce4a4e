package timeline

import (
	"fmt"
	"time"

	"hutch"
)

// How many network events of a sandbox are recorded: at once, and in a second.
const (
	burst     = 50
	perSecond = 5
)

// pace bounds the events of the network. The zero pace is full.
type pace struct {
	spent   float64
	at      time.Time
	skipped int
}

// take reports whether an event can be written.
func (p *pace) take(now time.Time) bool {
	p.spent = max(0, p.spent-perSecond*now.Sub(p.at).Seconds())
	p.at = now
	if p.spent+1 > burst {
		p.skipped++
		return false
	}
	p.spent++
	return true
}

func (j *journal) admit() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pace.take(time.Now())
}

func (j *journal) takeSkipped() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.pace.skipped
	j.pace.skipped = 0
	return n
}

// noteSkippedLocked records how many events were left out since the last one that was written.
func (j *journal) noteSkippedLocked() {
	n := j.pace.skipped
	if n == 0 || !j.pace.take(time.Now()) {
		return
	}
	j.pace.skipped = 0
	j.appendLocked(hutch.TimelineEntry{
		Time: time.Now().UTC(), Kind: hutch.TimelineNetwork, Event: Skipped, Result: hutch.TimelineOK, Skipped: n, Target: fmt.Sprintf("%d events of the network came too fast to be listed", n),
	})
}

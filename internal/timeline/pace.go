package timeline

import (
	"fmt"
	"slices"
	"time"

	"hutch"
)

// How many network events of a sandbox, and how many ends of its processes, are recorded: at once, and in a second.
const (
	burst     = 50
	endBurst  = 128 // twice as many as an agent lists
	perSecond = 5
)

// pace limits the rate of events that programs cause. The zero pace allows a whole burst.
type pace struct {
	spent   float64
	at      time.Time
	skipped int
}

// take reports whether an event can be written.
func (p *pace) take(now time.Time, burst float64) bool {
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
	return j.pace.take(time.Now(), burst)
}

// admitEnd reports whether the end of a process is to be recorded now. If too many ends come at once, some are recorded
// only when they are reported again.
func (j *journal) admitEnd(process string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.used = time.Now()
	return j.loadLocked() == nil && !slices.Contains(j.ends, process) && j.endPace.take(j.used, endBurst)
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
	if n == 0 || !j.pace.take(time.Now(), burst) {
		return
	}
	j.pace.skipped = 0
	j.appendLocked(hutch.TimelineEntry{
		Time: time.Now().UTC(), Kind: hutch.TimelineNetwork, Event: Skipped, Result: hutch.TimelineOK, Skipped: n, Target: fmt.Sprintf("%d events of the network came too fast to be listed", n),
	})
}

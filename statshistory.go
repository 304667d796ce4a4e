package hutch

import (
	"context"
	"time"
)

// Histories show what sandboxes used over time.
type Histories interface {
	// StatsHistory returns samples of what a sandbox used since it was created. A server without samples of the sandbox
	// returns none. The call wakes no sandbox, and keeps none awake.
	StatsHistory(ctx context.Context, sandbox string, q StatsQuery) (StatsHistory, error)
}

// StatsQuery chooses samples.
type StatsQuery struct {
	// Since and Until bound the times of the samples, both included. By default that is the life of the sandbox.
	Since, Until time.Time
	// Step is the shortest time between two samples, at most a day; default the shortest that the server has.
	Step Seconds
}

const maxStatsStep = 24 * 60 * 60 // s

// Check refuses a query that no server can answer.
func (q StatsQuery) Check() error {
	switch {
	case !(q.Step >= 0 && q.Step <= maxStatsStep): // NaN too
		return Errorf(Invalid, "step is %v: give at most %d seconds, or leave it out for the shortest that the server has", q.Step, maxStatsStep).Naming(AboutField, "step")
	case !q.Since.IsZero() && !q.Until.IsZero() && q.Until.Before(q.Since):
		return Errorf(Invalid, "since is %s, and until is %s, which is before it: exchange them", q.Since.UTC().Format(time.RFC3339), q.Until.UTC().Format(time.RFC3339)).Naming(AboutField, "since")
	}
	return nil
}

// StatsHistory is what a sandbox used over time.
type StatsHistory struct {
	// Step is the time between two samples. A longer gap means that the sandbox did not run, or the server did not.
	Step    Seconds       `json:"step"`
	Samples []StatsSample `json:"samples"` // oldest first, a few hundred at most; never null in JSON
}

// StatsSample is what a sandbox used on average from a moment until the next sample. Values that a runtime cannot
// measure are 0.
type StatsSample struct {
	Time        time.Time `json:"time"`
	CPU         float64   `json:"cpu"`         // percent of one core
	Memory      float64   `json:"memory"`      // MiB
	Disk        float64   `json:"disk"`        // MiB of written files
	SendRate    float64   `json:"sendRate"`    // bytes per second to the network
	ReceiveRate float64   `json:"receiveRate"` // bytes per second from the network
}

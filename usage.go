package hutch

import (
	"cmp"
	"context"
	"time"
)

// Accounts reports what sandboxes have used.
type Accounts interface {
	// Usage returns what the caller's sandboxes have used, or all sandboxes if the server itself calls. It wakes
	// none.
	Usage(ctx context.Context) (UsageReport, error)

	// Stats passes the current use of the caller's sandboxes to out, or of all sandboxes if the server itself calls.
	// Without Follow that is one report. With Follow it continues until out fails or ctx is done: each report then has
	// only the sandboxes that have changed, and destroyed ones once more. It wakes no sandbox, and keeps none awake.
	Stats(ctx context.Context, req StatsRequest, out func(StatsReport) error) error
}

// StatsRequest asks for the current use of sandboxes.
type StatsRequest struct {
	Follow bool `json:"follow,omitempty"`
	// Interval is the shortest time between two reports; default 2, from 0.5 to 60. A server takes longer when reading
	// its sandboxes would cost more than a fiftieth of a core.
	Interval Seconds `json:"interval,omitempty"`
}

const (
	statsInterval            = 2 // s
	minInterval, maxInterval = 0.5, 60
)

// Check refuses a request that no server can answer.
func (r StatsRequest) Check() error {
	if r.Interval == 0 || r.Interval >= minInterval && r.Interval <= maxInterval {
		return nil
	}
	return Errorf(Invalid, "interval is %v: give %v to %v seconds, or leave it out for %v", r.Interval, minInterval, maxInterval, statsInterval).Naming(AboutField, "interval")
}

// Every is the interval, or its default.
func (r StatsRequest) Every() time.Duration { return cmp.Or(r.Interval, statsInterval).Duration() }

// StatsReport is the use of sandboxes at one moment.
type StatsReport struct {
	Time time.Time `json:"time"`
	// Full is true for a report of all sandboxes, which replaces earlier reports. Otherwise the report has only
	// changes.
	Full      bool    `json:"full"`
	Sandboxes []Stats `json:"sandboxes"` // oldest first; never null in JSON
}

// Stats is the current use and the limits of one sandbox. Values that a runtime cannot measure are 0, and so are those
// of a sleeping sandbox.
type Stats struct {
	SandboxID string    `json:"sandboxId"`
	Owner     string    `json:"owner,omitempty"`
	Status    Status    `json:"status"` // Destroyed for a destroyed sandbox
	Health    Health    `json:"health"`
	Runtime   string    `json:"runtime"`
	CreatedAt time.Time `json:"createdAt"`
	CPU       float64   `json:"cpu"`    // percent of one core, since the last reading
	Memory    float64   `json:"memory"` // MiB
	Disk      float64   `json:"disk"`   // MiB of written files
	PIDs      int       `json:"pids"`   // processes and threads
	// Network traffic in bytes since the sandbox was created, as in Usage.
	NetworkSent     int64   `json:"networkSent"`
	NetworkReceived int64   `json:"networkReceived"`
	CPUSeconds      float64 `json:"cpuSeconds"` // since it was created
	Cost            float64 `json:"cost"`       // with the server's prices, in their currency, since it was created

	CPULimit    float64 `json:"cpuLimit"`    // cores
	MemoryLimit int     `json:"memoryLimit"` // MiB
	DiskLimit   int     `json:"diskLimit"`   // MiB
}

// Usage is what a sandbox has used since it was created, or the sum over an owner's sandboxes. Figures that a runtime
// cannot measure are 0.
type Usage struct {
	SandboxID     string  `json:"sandboxId,omitempty"` // empty in the sum of an owner
	Owner         string  `json:"owner,omitempty"`
	Status        Status  `json:"status,omitempty"` // empty in a sum
	CPUSeconds    float64 `json:"cpuSeconds"`
	MemorySeconds float64 `json:"memoryGBSeconds"` // GiB of memory times seconds
	MemoryPeak    float64 `json:"memoryPeak"`      // MiB
	Disk          float64 `json:"disk"`            // MiB of written files, now
	// Network traffic in bytes, to the world and to linked sandboxes. Previews and the server's own transfers are not
	// counted.
	NetworkSent     int64 `json:"networkSent"`
	NetworkReceived int64 `json:"networkReceived"`

	Executions int64   `json:"executions"` // commands, runs of code and processes that were started
	WallTime   Seconds `json:"wallTime"`   // while it ran
	Cost       float64 `json:"cost"`       // with the server's prices, in their currency
}

// Add returns the sum of u and v, as a record of an owner.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Owner:      u.Owner,
		CPUSeconds: u.CPUSeconds + v.CPUSeconds, MemorySeconds: u.MemorySeconds + v.MemorySeconds,
		MemoryPeak: max(u.MemoryPeak, v.MemoryPeak), Disk: u.Disk + v.Disk,
		NetworkSent: u.NetworkSent + v.NetworkSent, NetworkReceived: u.NetworkReceived + v.NetworkReceived,
		Executions: u.Executions + v.Executions, WallTime: u.WallTime + v.WallTime, Cost: u.Cost + v.Cost,
	}
}

// Prices turn usage into a cost.
type Prices struct {
	CPUSecond      float64 // price of a second of one core
	MemoryGBSecond float64 // price of a GiB for a second
	Execution      float64
	NetworkGB      float64 // price of a GiB sent or received
	WallSecond     float64 // price of a second that a sandbox runs
}

// Of returns the cost of u.
func (p Prices) Of(u Usage) float64 {
	const gib = 1 << 30
	return p.NetworkGB*float64(u.NetworkSent+u.NetworkReceived)/gib + p.CPUSecond*u.CPUSeconds + p.MemoryGBSecond*u.MemorySeconds + p.Execution*float64(u.Executions) + p.WallSecond*float64(u.WallTime)
}

// UsageReport is the usage of a server.
type UsageReport struct {
	Sandboxes []Usage `json:"sandboxes"` // existing sandboxes
	// Owners holds a sum for each owner, including destroyed sandboxes.
	Owners []Usage `json:"owners"`
}

// Version is the version of a server.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // commit that it was built from
}

package hutch

import "context"

// Accounts reports what sandboxes have used.
type Accounts interface {
	// Usage returns what the caller's sandboxes have used, or all sandboxes if the server itself calls. It wakes
	// none.
	Usage(ctx context.Context) (UsageReport, error)
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
	WallTime   Seconds `json:"wallTime"`   // that it ran
	Cost       float64 `json:"cost"`       // by the server's prices, in their currency
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
	CPUSecond      float64 // of a second of one core
	MemoryGBSecond float64 // of a GiB for a second
	Execution      float64
	NetworkGB      float64 // of a GiB sent or received
	WallSecond     float64 // of a second that a sandbox runs
}

// Of returns the cost of u.
func (p Prices) Of(u Usage) float64 {
	const gib = 1 << 30
	return p.NetworkGB*float64(u.NetworkSent+u.NetworkReceived)/gib + p.CPUSecond*u.CPUSeconds + p.MemoryGBSecond*u.MemorySeconds + p.Execution*float64(u.Executions) + p.WallSecond*float64(u.WallTime)
}

// UsageReport is the usage of a server.
type UsageReport struct {
	Sandboxes []Usage `json:"sandboxes"` // those that there are
	// Owners holds a sum for each owner, including destroyed sandboxes.
	Owners []Usage `json:"owners"`
}

// Version is the version of a server.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // that it was built from
}

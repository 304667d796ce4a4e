package hutch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Accounts reports what sandboxes have used.
type Accounts interface {
	// Usage returns what the caller's sandboxes have used, or all sandboxes if the server itself calls. It wakes no
	// sandbox.
	Usage(ctx context.Context) (UsageReport, error)

	// UsageHistory returns what the caller's sandboxes used on past days, or all sandboxes if the server itself calls.
	// Destroyed sandboxes are included. It wakes no sandbox.
	UsageHistory(ctx context.Context, q UsageQuery) ([]Usage, error)

	// Stats passes the current use of the caller's sandboxes to out, or of all sandboxes if the server itself calls.
	// Without Follow that is one report. With Follow it continues until out fails or ctx is done: each report then has
	// only the sandboxes that have changed, and destroyed ones once more. A partial report comes at once when a sandbox is
	// new or gone, or changes its status or health. It wakes no sandbox, and keeps none awake.
	Stats(ctx context.Context, req StatsRequest, out func(StatsReport) error) error
}

// StatsRequest asks for the current use of sandboxes.
type StatsRequest struct {
	Follow bool `json:"follow,omitempty"`
	// Interval is the shortest time between two reports that are not partial; default 2, from 0.5 to 60. The server
	// makes it longer when reading its sandboxes would cost more than a fiftieth of a core.
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

// Every returns the interval, or its default.
func (r StatsRequest) Every() time.Duration { return cmp.Or(r.Interval, statsInterval).Duration() }

// StatsReport is the use of sandboxes at one moment.
type StatsReport struct {
	Time time.Time `json:"time"`
	// Full is true for a report of all sandboxes, which replaces earlier reports. Otherwise the report has only
	// changes.
	Full bool `json:"full"`
	// Partial is true for a report of sandboxes that are new or gone, or have another status or health. The others were
	// not read, and can have changed.
	Partial   bool    `json:"partial,omitempty"`
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

// Ended returns the stats of a sandbox that does not run any more: with its last status, and without present use.
func (s Stats) Ended(status Status) Stats {
	s.Status, s.CPU, s.Memory, s.Disk, s.PIDs = status, 0, 0, 0, 0
	return s
}

// Usage is what a sandbox has used since it was created, or a sum over several sandboxes. Figures that a runtime cannot
// measure are 0.
type Usage struct {
	SandboxID     string  `json:"sandboxId,omitempty"` // empty in a sum
	Owner         string  `json:"owner,omitempty"`     // empty for the server's own token, and in a sum over owners
	Status        Status  `json:"status,omitempty"`    // empty in a sum
	Day           string  `json:"day,omitempty"`       // in a history by day: the day in UTC, such as "2026-11-28"
	Image         string  `json:"image,omitempty"`     // of the sandbox, or in a history by image
	CPUSeconds    float64 `json:"cpuSeconds"`
	MemorySeconds float64 `json:"memoryGBSeconds"` // GiB of memory times seconds
	MemoryPeak    float64 `json:"memoryPeak"`      // MiB, of one sandbox
	Disk          float64 `json:"disk"`            // MiB of written files, now; 0 in a history
	// Network traffic in bytes, to the world and to linked sandboxes. Previews and the server's own transfers are not
	// counted.
	NetworkSent     int64 `json:"networkSent"`
	NetworkReceived int64 `json:"networkReceived"`

	Executions int64   `json:"executions"` // commands, runs of code and processes that were started
	WallTime   Seconds `json:"wallTime"`   // time during which it ran
	Cost       float64 `json:"cost"`       // with the server's prices, in their currency
}

// Since returns what was used between an earlier reading of the same sandbox and u.
func (u Usage) Since(before Usage) Usage {
	return Usage{
		CPUSeconds: u.CPUSeconds - before.CPUSeconds, MemorySeconds: u.MemorySeconds - before.MemorySeconds, MemoryPeak: u.MemoryPeak,
		NetworkSent: u.NetworkSent - before.NetworkSent, NetworkReceived: u.NetworkReceived - before.NetworkReceived,
		Executions: u.Executions - before.Executions, WallTime: u.WallTime - before.WallTime,
	}
}

// Idle reports whether nothing was used.
func (u Usage) Idle() bool {
	return u.CPUSeconds == 0 && u.MemorySeconds == 0 && u.NetworkSent == 0 && u.NetworkReceived == 0 && u.Executions == 0 && u.WallTime == 0
}

// Add returns the sum of u and v. It has the owner of u, and no sandbox, day or image.
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

// UsageGroup is what sums of past use are grouped by.
type UsageGroup string

// The groups of use.
const (
	UsageByDay   UsageGroup = "day"
	UsageByOwner UsageGroup = "owner"
	UsageByImage UsageGroup = "image"
)

// UsageQuery asks for the use on past days.
type UsageQuery struct {
	// From and To are the first and the last day, in UTC and in the form "2026-11-28"; default the last 30 days. With
	// only To, the range is the 30 days that end with it.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// By says what the sums are grouped by; default day. With all groups there is a sum for each day, owner and image.
	By []UsageGroup `json:"by,omitempty"`
}

const (
	// MaxUsageDays is how many days a query covers, and how long the use of a day is kept.
	MaxUsageDays = 400
	usageDays    = 30 // by default
)

// Check refuses a query that no server can answer.
func (q UsageQuery) Check() error {
	for i, g := range q.By {
		if !slices.Contains([]UsageGroup{UsageByDay, UsageByOwner, UsageByImage}, g) {
			return Errorf(Invalid, "by has %.80q: group by day, owner or image, or by several of them, such as day,image", g).Naming(AboutField, "by")
		}
		if slices.Contains(q.By[:i], g) {
			return Errorf(Invalid, "by has %q twice: give each group once", g).Naming(AboutField, "by")
		}
	}
	for field, day := range map[string]string{"from": q.From, "to": q.To} {
		if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
			return Errorf(Invalid, "%s is %.80q: give a day such as 2026-11-28", field, day).Naming(AboutField, field)
		}
	}
	from, to := q.Days(time.Now())
	switch days := int(to.Sub(from).Hours()/24) + 1; {
	case days < 1:
		return Errorf(Invalid, "from is %s, and to is %s, which is before it: exchange them", from.Format(time.DateOnly), to.Format(time.DateOnly)).Naming(AboutField, "from")
	case days > MaxUsageDays:
		return Errorf(Invalid, "from %s to %s are %d days: ask for at most %d", from.Format(time.DateOnly), to.Format(time.DateOnly), days, MaxUsageDays).Naming(AboutField, "from")
	}
	return nil
}

// Days returns the first and the last day of a checked query.
func (q UsageQuery) Days(now time.Time) (from, to time.Time) {
	to, err := time.Parse(time.DateOnly, q.To)
	if err != nil {
		to = now.UTC().Truncate(24 * time.Hour)
	}
	if from, err = time.Parse(time.DateOnly, q.From); err != nil {
		from = to.AddDate(0, 0, 1-usageDays)
	}
	return from, to
}

// Grouped returns sums of use by the groups of the query, in the order of days, owners and images. Each item of list has
// a day, an owner and an image.
func (q UsageQuery) Grouped(list []Usage) []Usage {
	by := q.By
	if len(by) == 0 {
		by = []UsageGroup{UsageByDay}
	}
	type group struct{ day, owner, image string }
	sums := map[group]Usage{}
	for _, u := range list {
		var g group
		for _, name := range by {
			switch name {
			case UsageByDay:
				g.day = u.Day
			case UsageByOwner:
				g.owner = u.Owner
			case UsageByImage:
				g.image = u.Image
			}
		}
		sums[g] = sums[g].Add(u)
	}
	grouped := make([]Usage, 0, len(sums))
	for g, u := range sums {
		u.Day, u.Owner, u.Image = g.day, g.owner, g.image
		grouped = append(grouped, u)
	}
	slices.SortFunc(grouped, func(a, b Usage) int {
		return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Owner, b.Owner), strings.Compare(a.Image, b.Image))
	})
	return grouped
}

// Version is the version of a server.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // commit that it was built from
}

package hutch

import "time"

// HealthCheck is a command whose exit code says whether a background process works, as HEALTHCHECK does in a
// Dockerfile. It runs next to the process, as the same user, in the same folder, with the same environment.
type HealthCheck struct {
	Command  string  `json:"command"`            // a command line; exit code 0 means healthy
	Interval Seconds `json:"interval,omitempty"` // from the end of one check to the next; default 30
	Timeout  Seconds `json:"timeout,omitempty"`  // after this time a check is killed, and has failed; default 30
	// StartPeriod is the time after a start in which failures do not count; default 0.
	StartPeriod Seconds `json:"startPeriod,omitempty"`
	// StartInterval replaces Interval until a check has succeeded; default 5, and at most Interval.
	StartInterval Seconds `json:"startInterval,omitempty"`
	Retries       int     `json:"retries,omitempty"` // failures in a row that make the process unhealthy; default 3
}

const (
	minHealthTime = 0.1     // seconds: with shorter intervals, checks would use most of a sandbox's CPU
	maxHealthTime = 86400   // seconds
	maxRetries    = 1 << 20 // failed checks
)

// Check refuses a check that no server can make.
func (c HealthCheck) Check() error {
	if err := checkProgram(c.Command, "", nil, nil); err != nil {
		return Errorf(Invalid, "health: %v", err).Naming(AboutField, "health")
	}
	for _, t := range []Seconds{c.Interval, c.Timeout, c.StartInterval} {
		if t != 0 && !(t >= minHealthTime && t <= maxHealthTime) {
			return Errorf(Invalid, "a time of the health check is %v s: give %v to %d, or leave it out", t, minHealthTime, maxHealthTime).Naming(AboutField, "health")
		}
	}
	switch {
	case !(c.StartPeriod >= 0 && c.StartPeriod <= maxHealthTime):
		return Errorf(Invalid, "startPeriod of the health check is %v s: give 0 to %d", c.StartPeriod, maxHealthTime).Naming(AboutField, "health")
	case c.Retries < 0 || c.Retries > maxRetries:
		return Errorf(Invalid, "retries of the health check is %d: give 1 to %d, or leave it out for 3", c.Retries, maxRetries).Naming(AboutField, "health")
	}
	return nil
}

// WithDefaults fills in missing values of the check. Values out of range, which images can have, are moved into the
// range.
func (c HealthCheck) WithDefaults() HealthCheck {
	within := func(t, usual, least Seconds) Seconds {
		if t == 0 {
			t = usual
		}
		return min(max(t, least), maxHealthTime)
	}
	c.Interval = within(c.Interval, 30, minHealthTime)
	c.Timeout = within(c.Timeout, 30, minHealthTime)
	c.StartPeriod = within(c.StartPeriod, 0, 0)
	c.StartInterval = min(within(c.StartInterval, 5, minHealthTime), c.Interval)
	if c.Retries == 0 {
		c.Retries = 3
	}
	c.Retries = min(max(c.Retries, 1), maxRetries)
	return c
}

// HealthStatus is what the checks of a process have found.
type HealthStatus string

const (
	HealthStarting  HealthStatus = "starting" // no check has succeeded, and not enough have failed
	HealthGood      HealthStatus = "healthy"
	HealthUnhealthy HealthStatus = "unhealthy" // as many checks in a row as Retries have failed, or the process is not running
)

// MaxHealthOutput is how many bytes of a check's output are kept.
const MaxHealthOutput = 1 << 10

// ProcessHealth is the health of a process. It has no effect by itself: an unhealthy process is neither ended nor
// restarted.
type ProcessHealth struct {
	Status   HealthStatus `json:"status"`
	Failures int          `json:"failures"` // failures in a row that count
	// The other fields describe the last check. They are left out before the first check.
	ExitCode  *int       `json:"exitCode,omitempty"` // 124 for a check that took too long
	Output    string     `json:"output,omitempty"`   // the beginning of the check's output
	CheckedAt *time.Time `json:"checkedAt,omitempty"`
}

// Care is the health check and stop signal of a background process. An image can set them for its own program.
type Care struct {
	// StopSignal asks the process to end; default 15. When its sandbox is stopped, the process gets this signal, and
	// time to end.
	StopSignal int `json:"stopSignal,omitempty"`
	// Health says whether the process does its work.
	Health *HealthCheck `json:"health,omitempty"`
}

func (c Care) check() error {
	if c.StopSignal != 0 {
		if err := CheckSignal(c.StopSignal); err != nil {
			return AsError(err).Naming(AboutField, "stopSignal")
		}
	}
	if c.Health != nil {
		return c.Health.Check()
	}
	return nil
}

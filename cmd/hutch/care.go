package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"hutch"
)

// careFlags set the health check and stop signal of a background process. They have Docker's names.
type careFlags struct {
	signal                                        string
	command                                       string
	interval, timeout, startPeriod, startInterval time.Duration
	retries                                       int
}

func (c *careFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&c.signal, "stop-signal", "", "`SIGNAL` that asks the process to end, such as QUIT or 3 (default: as the image says with --entrypoint, else TERM)")
	f.StringVar(&c.command, "health-cmd", "", "command line that says by exit code 0 that the process is healthy (default: as the image says with --entrypoint)")
	positiveDurationVar(f, &c.interval, "health-interval", "", 0, "time between two checks (default 30s)")
	positiveDurationVar(f, &c.timeout, "health-timeout", "", 0, "time after which a check has failed (default 30s)")
	durationVar(f, &c.startPeriod, "health-start-period", "", 0, "time after a start in which failures do not count, 0 for none")
	positiveDurationVar(f, &c.startInterval, "health-start-interval", "", 0, "time between two checks until one has succeeded (default 5s)")
	f.IntVar(&c.retries, "health-retries", 0, "failures in a row that make it unhealthy (default 3)")
}

func (c *careFlags) care() (care hutch.Care, err error) {
	if c.signal != "" {
		if care.StopSignal, err = signalNumber(c.signal); err != nil {
			return care, err
		}
	}
	check := hutch.HealthCheck{
		Command: c.command, Interval: hutch.InSeconds(c.interval), Timeout: hutch.InSeconds(c.timeout),
		StartPeriod: hutch.InSeconds(c.startPeriod), StartInterval: hutch.InSeconds(c.startInterval), Retries: c.retries,
	}
	switch {
	case check == (hutch.HealthCheck{}):
	case check.Command == "":
		return care, usageError{errors.New("the flags that begin with --health- are about --health-cmd: give that, too")}
	default:
		care.Health = &check
	}
	return care, nil
}

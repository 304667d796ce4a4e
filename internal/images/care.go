package images

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/oci"
)

// care returns the health check and stop signal that an image sets for its program. Invalid values are ignored: the
// files of such an image can still be used.
func care(c oci.Config) hutch.Care {
	return hutch.Care{StopSignal: stopSignal(c.StopSignal), Health: healthcheck(c)}
}

// The kernel's real-time signals, as C libraries have them.
const firstRealTime, lastRealTime = 34, 64

// stopSignal returns the number of a signal: 3, QUIT, SIGQUIT, RTMIN+3. It is 0 for text that names none.
func stopSignal(text string) int {
	name := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(text)), "SIG")
	n, err := strconv.Atoi(name)
	if err != nil {
		n = int(unix.SignalNum("SIG" + name))
	}
	if rest, ok := strings.CutPrefix(name, "RTMIN"); ok {
		n = realTime(rest, "+", firstRealTime, 1)
	} else if rest, ok := strings.CutPrefix(name, "RTMAX"); ok {
		n = realTime(rest, "-", lastRealTime, -1)
	}
	if hutch.CheckSignal(n) != nil {
		return 0
	}
	return n
}

// realTime returns the signal that is distance away from the signal from, in a direction. distance is a text such as
// "+3", whose sign must be sign; "" is no distance. If distance is invalid, the result is 0.
func realTime(distance, sign string, from, direction int) int {
	if distance == "" {
		return from
	}
	text, ok := strings.CutPrefix(distance, sign)
	n, err := strconv.ParseUint(text, 10, 8)
	if !ok || err != nil || n > lastRealTime-firstRealTime {
		return 0
	}
	return from + direction*int(n)
}

// healthcheck returns the check of an image's HEALTHCHECK; nil for none, and for an invalid one.
func healthcheck(c oci.Config) *hutch.HealthCheck {
	h := c.Healthcheck
	if h == nil || len(h.Test) < 2 {
		return nil
	}
	check := hutch.HealthCheck{
		Interval: hutch.InSeconds(h.Interval), Timeout: hutch.InSeconds(h.Timeout), StartPeriod: hutch.InSeconds(h.StartPeriod),
		StartInterval: hutch.InSeconds(h.StartInterval), Retries: h.Retries,
	}.WithDefaults()
	switch h.Test[0] {
	case "CMD":
		check.Command = hutch.CommandLine(h.Test[1:]...)
	case "CMD-SHELL":
		shell := c.Shell
		if len(shell) == 0 {
			shell = []string{"/bin/sh", "-c"}
		}
		check.Command = hutch.CommandLine(append(shell[:len(shell):len(shell)], h.Test[1])...)
	}
	if check.Check() != nil {
		return nil
	}
	return &check
}

package engine

import (
	"cmp"
	"strings"

	"hutch"
)

const (
	minMemory = 32      // MiB
	maxLimit  = 1 << 30 // MiB: no machine has more
	maxPIDs   = 1 << 22 // as many as Linux can count
	maxLive   = 1000    // background processes, as many as one list tells of
	maxEnv    = 1 << 20 // bytes, of which no program can be given many more
	maxLabels = 64
	maxLabel  = 1 << 10 // bytes
)

func (e *Engine) checkLimits(l hutch.Limits) error {
	switch {
	case !(l.CPU >= 0 && l.CPU <= 1024) || l.CPU > 0 && l.CPU < 0.01:
		return hutch.Errorf(hutch.Invalid, "limits.cpu is %v: give cores, from 0.01 up, or leave it out for 1", l.CPU)
	case l.Memory < 0 || l.Memory > maxLimit || l.Memory > 0 && l.Memory < minMemory:
		return hutch.Errorf(hutch.Invalid, "limits.memory is %d MiB: give at least %d, or leave it out for 512", l.Memory, minMemory)
	case l.Disk < 0 || l.Disk > maxLimit:
		return hutch.Errorf(hutch.Invalid, "limits.disk is %d MiB: it may not be negative or over %d", l.Disk, maxLimit)
	case l.Processes < 0 || l.Processes > maxLive:
		return hutch.Errorf(hutch.Invalid, "limits.processes is %d: give 1 to %d, or leave it out for 10", l.Processes, maxLive)
	case l.PIDs < 0 || l.PIDs > maxPIDs || l.PIDs > 0 && l.PIDs < 8:
		return hutch.Errorf(hutch.Invalid, "limits.pids is %d: give 8 to %d, or leave it out for 512", l.PIDs, maxPIDs)
	}
	most := e.opt.MaxLimits
	return cmp.Or(within("cpu", "cores", l.CPU, most.CPU), within("memory", "MiB", l.Memory, most.Memory),
		within("disk", "MiB", l.Disk, most.Disk), within("pids", "processes", l.PIDs, most.PIDs),
		within("processes", "processes", l.Processes, most.Processes))
}

// within refuses a limit over what the server gives at most; 0 is no ceiling.
func within[N int | float64](limit, unit string, asked, most N) error {
	if most <= 0 || asked <= most {
		return nil
	}
	return hutch.Errorf(hutch.Invalid, "limits.%s is %v %s, and this server gives a sandbox at most %v: ask for less, or have its administrator allow more (hutch serve --max-%s)",
		limit, asked, unit, most, limit).With("limit", limit)
}

// fillLimits gives a sandbox what it was not asked for with, and no more than the
// ceilings of the server.
func fillLimits(l, most hutch.Limits, runtime string) hutch.Limits {
	fill(&l.CPU, 1, most.CPU)
	fill(&l.Memory, 512, most.Memory)
	disk := 1024
	if runtime == "native" { // whose files lie in memory
		disk = l.Memory / 2
	}
	fill(&l.Disk, disk, most.Disk)
	fill(&l.PIDs, 512, most.PIDs)
	fill(&l.Processes, 10, most.Processes)
	return l
}

func fill[N int | float64](limit *N, usual, most N) {
	if *limit != 0 {
		return
	}
	*limit = usual
	if most > 0 {
		*limit = min(usual, most)
	}
}

func checkEnv(env map[string]string) error {
	size := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return hutch.Errorf(hutch.Invalid, "the environment variable %q cannot be set: names hold no '=' and are not empty, and nothing holds a NUL byte", k)
		}
		size += len(k) + len(v) + 16 // as programs are given it
	}
	if size > maxEnv {
		return hutch.Errorf(hutch.Invalid, "the environment has %d variables of %d bytes, over the limit of %d: put the data into a file", len(env), size, maxEnv).With("field", "env")
	}
	return nil
}

// checkLabels bounds what is kept, and told in every list, of each sandbox.
func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return hutch.Errorf(hutch.Invalid, "a sandbox has at most %d labels, not %d", maxLabels, len(labels)).With("field", "labels")
	}
	for k, v := range labels {
		if len(k)+len(v) > maxLabel {
			return hutch.Errorf(hutch.Invalid, "the label %.40q has %d bytes: give name and value at most %d together", k, len(k)+len(v), maxLabel).With("field", "labels")
		}
	}
	return nil
}

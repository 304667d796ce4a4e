package main

import (
	"sync"
	_ "unsafe" // for linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	_ "gvisor.dev/gvisor/pkg/sentry/seccheck" // has pointsOnce
	"gvisor.dev/gvisor/runsc/boot/filter"

	compiled "hutch/internal/driver/gvisor/filter"
)

// programs are the filters of system calls that gVisor need not compile. A
// build from its Go module has none.
//
//go:linkname programs gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var programs map[string]precompiledseccomp.Program

// pointsOnce guards the making of the list of all points where a sandbox can be
// traced (runsc trace), which nobody does here.
//
//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

// spare has a sandbox not do what costs time at its start and memory for ever:
// compile its filter, which is here already, and list the points.
func spare() {
	filter.ListPrecompiled() // the first who asks makes the map
	programs[compiled.Sentry.Name] = compiled.Sentry
	pointsOnce.Do(func() {})
}

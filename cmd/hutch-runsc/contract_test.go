package main

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/boot/filter"

	"hutch/internal/driver/gvisor/contract"
)

func TestCallsAreGVisors(t *testing.T) {
	for ours, gvisors := range map[string]string{
		contract.SetNetworkArgs:   boot.ContMgrSetNetworkArgs,
		contract.StartRoot:        boot.ContMgrRootContainerStart,
		contract.Restore:          boot.ContMgrRestore,
		contract.Pause:            boot.ContMgrPause,
		contract.Resume:           boot.ContMgrResume,
		contract.Checkpoint:       boot.ContMgrCheckpoint,
		contract.Signal:           boot.ContMgrSignal,
		contract.ReadControlFiles: boot.CgroupsReadControlFiles,
	} {
		if ours != gvisors {
			t.Errorf("package contract says %q, gVisor %q: change the constant, and compare the arguments that the driver sends (control.go, save.go) with gVisor's", ours, gvisors)
		}
	}
}

// If gVisor renames a variable that is linked by name, the link silently makes a new variable. The sentry then compiles
// its filters at every start again.
func TestLinkedNamesAreGVisors(t *testing.T) {
	const name = "made by this test"
	filter.ListPrecompiled() // makes the map
	if programs == nil {
		t.Fatal("gVisor has no runsc/boot/filter.precompiledPrograms any more: look in that package where GetPrecompiled finds its programs now, and link programs in sentry.go to it; without one, remove the precompiled filters")
	}
	programs[name] = precompiledseccomp.Program{}
	defer delete(programs, name)
	if !slices.Contains(filter.ListPrecompiled(), name) {
		t.Error("gVisor does not use the programs that sentry.go links to: see GetPrecompiled in runsc/boot/filter")
	}

	pointsOnce.Do(func() {})
	before := len(seccheck.Points)
	if seccheck.Initialize(); len(seccheck.Points) != before {
		t.Error("gVisor lists its trace points all the same: look in pkg/sentry/seccheck what Initialize does only once, and link pointsOnce in sentry.go to it; or remove it, at some milliseconds of each start")
	}
}

package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe" // also for linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	_ "gvisor.dev/gvisor/pkg/sentry/seccheck" // has pointsOnce
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/specutils"

	compiled "hutch/internal/driver/gvisor/filter"
)

// programs are the filters of system calls that gVisor need not compile. A
// build from its Go module has none.
//
//go:linkname programs gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var programs map[string]precompiledseccomp.Program

// pointsOnce guards the making of the list of all points where a sandbox can be traced (runsc trace). Hutch does not
// trace.
//
//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

// skipStartWork skips work that costs a sandbox time at its start and memory for its life: compiling its filter, which is
// compiled already; listing the trace points; and running this program again to unmount /proc.
func skipStartWork() {
	filter.ListPrecompiled() // the first caller creates the map
	programs[compiled.Sentry.Name] = compiled.Sentry
	pointsOnce.Do(func() {})
	if helper = openGofer(); helper != nil {
		specutils.ExePath = fmt.Sprintf("/proc/self/fd/%d", helper.Fd())
	}
}

// helper stays open, because gVisor executes it by the number of its file descriptor.
var helper *os.File

// header and sets are the kernel's arguments about this process's capabilities; sets has the lower 32 and the others.
// They must not move in memory, as stack variables can.
var (
	header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	sets   [2]unix.CapUserData
)

// dropCapabilities removes the capabilities that gVisor does not keep from the bounding set of all threads. Each costs
// a system call in every thread, and gVisor would do the same later, with twice as many threads. Without CAP_SETPCAP,
// gVisor does nothing. The program that unmounts /proc gets its capability from the inheritable set, which gVisor
// empties.
func dropCapabilities() {
	if err := unix.Capget(&header, &sets[0]); err != nil {
		fail("read capabilities", err)
	}
	if sets[0].Effective&(1<<unix.CAP_SETPCAP) == 0 {
		return
	}
	sets[0].Inheritable = 1 << unix.CAP_SYS_ADMIN // a capability can only become inheritable while it is in the bounding set
	setAll()
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if kept&(1<<c) == 0 {
			allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
		}
	}
	sets[0].Effective &^= 1 << unix.CAP_SETPCAP
	sets[0].Permitted &^= 1 << unix.CAP_SETPCAP
	setAll()
}

func setAll() {
	allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)))
}

// kept are the capabilities that gVisor leaves to its sentry: for the image's files, and for the processes in which
// programs run.
const kept = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID | 1<<unix.CAP_SYS_PTRACE

func allThreads(trap, a, b uintptr) {
	_, _, errno := syscall.AllThreadsSyscall(trap, a, b, 0)
	if errno != 0 && errno != syscall.EINVAL { // no such capability
		fail("give up capabilities", errno)
	}
}

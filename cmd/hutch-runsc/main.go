// Hutch-runsc is gVisor's OCI runtime, runsc, built from its Go module at the version in go.mod, with the commands
// that Hutch needs. This file adds four things: runsc can wait until it is in its control group; it makes the
// sandbox's network device; it shows a sandbox the memory that its bundle grants instead of the host's; and it gives
// back the memory that only its start needed. Also, its gofer hides names that the image masks (masks.go) and becomes
// hutch-gofer (gofer.go), and its sentry skips work at its start (sentry.go).
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"hutch/internal/driver/gvisor/contract"
)

func main() {
	// A sandbox that is stopped for a save gets this signal when the daemon dies.
	signal.Ignore(syscall.SIGHUP)
	gate()
	if i := slices.Index(os.Args, "boot"); i > 0 {
		skipStartWork()
		dropCapabilities()
		makeNetwork()
		grantMemory(os.Args[i:])
	}
	if slices.Contains(os.Args, "gofer") {
		continueAsHutchGofer()
	}
	if !slices.Contains(os.Args, "create") {
		saveMemory()
	}
	cli.Run(nil, commands, nil)
}

var commands = map[util.SubCommand]string{
	new(cmd.Create): "",
	// gVisor runs this program again with these commands, for each sandbox.
	new(cmd.Gofer):        "internal",
	new(sentrycmd.Boot):   "internal",
	new(sentrycmd.Umount): "internal",
	// For people who examine a sandbox.
	new(cmd.Debug): "debug",
	new(cmd.Exec):  "debug",
	new(cmd.List):  "debug",
}

// gate waits for a byte from the pipe whose number is in the variable contract.Gate. The byte comes when this process
// has been moved into the sandbox's control group, so all its children start there. If the pipe closes instead, the
// daemon no longer wants the sandbox.
func gate() {
	fd, err := strconv.Atoi(os.Getenv(contract.Gate))
	if err != nil {
		return
	}
	os.Unsetenv(contract.Gate)
	os.Unsetenv("GOGC") // the setting was only for this short-lived process
	pipe := os.NewFile(uintptr(fd), "gate")
	if _, err := pipe.Read(make([]byte, 1)); err != nil {
		os.Exit(1)
	}
	pipe.Close()
}

// queue is how many packets can wait for their reader: as many as in a network device. The system's default for
// messages, 10, would lose packets of programs that open a few connections at once.
const queue = 500

// makeNetwork makes the two ends of the network in the sandbox's process. The process keeps both, so that any later
// daemon finds its end there.
func makeNetwork() {
	if _, err := unix.FcntlInt(contract.NetworkFD, unix.F_GETFD, 0); err == nil {
		return // this process has executed itself again
	}
	// The setting belongs to the network namespace, which is this sandbox's own. A kernel that does not let ordinary
	// users change it leaves the queue at 10 messages.
	_ = os.WriteFile("/proc/sys/net/unix/max_dgram_qlen", []byte(strconv.Itoa(queue)), 0)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fail("make a network device", err)
	}
	for i, fd := range []int{contract.NetworkFD, contract.DeviceFD} {
		if err := unix.Dup3(pair[i], fd, 0); err != nil {
			fail("make a network device", err)
		}
		unix.Close(pair[i])
	}
}

func fail(doing string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
	os.Exit(1)
}

// grantMemory sets how much memory a booting sandbox sees.
func grantMemory(args []string) {
	var bundle string
	for _, arg := range args {
		if dir, ok := strings.CutPrefix(arg, "--bundle="); ok {
			bundle = dir
		}
	}
	if i := slices.Index(args, "--total-memory") + 1; i > 0 && i < len(args) {
		if limit := memoryLimit(bundle); limit > 0 {
			args[i] = strconv.FormatInt(limit, 10)
		}
	}
}

// memoryLimit reads linux.resources.memory.limit of a bundle; 0 means no limit.
func memoryLimit(bundle string) int64 {
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return 0
	}
	var spec specs.Spec
	if json.Unmarshal(text, &spec) != nil || spec.Linux == nil || spec.Linux.Resources == nil ||
		spec.Linux.Resources.Memory == nil || spec.Linux.Resources.Memory.Limit == nil {
		return 0
	}
	return *spec.Linux.Resources.Memory.Limit
}

// saveMemory keeps the two long-lived processes of each sandbox small, except at their start and after contract.Hurry:
// then speed counts more.
func saveMemory() {
	hurries := make(chan os.Signal, 1)
	signal.Notify(hurries, contract.Hurry)
	collects := make(chan os.Signal, 1)
	signal.Notify(collects, contract.Collect)
	go func() {
		for range collects {
			debug.FreeOSMemory()
		}
	}()
	debug.SetGCPercent(quick)
	go func() {
		for {
			time.Sleep(2 * time.Second)
			debug.SetGCPercent(small)
			debug.FreeOSMemory()
			<-hurries
			debug.SetGCPercent(quick)
		}
	}()
}

// quick and small are by how many percent the heap can grow before garbage is collected.
const quick, small = 400, 40

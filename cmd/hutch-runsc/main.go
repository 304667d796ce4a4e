// Hutch-runsc is gVisor's OCI runtime, runsc, built from its Go module at the
// version in go.mod, with the commands that Hutch needs. Of itself it adds what
// stands in this file: it can be held back until it is in its control group, it
// makes the sandbox's network device, it shows a sandbox the memory that its
// bundle grants, where runsc would show it the host's, and it gives back the
// memory that only its start needed. Beside that its gofer becomes hutch-gofer
// (gofer.go), and its sentry is spared work of its start (sentry.go).
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
)

func main() {
	// A sandbox that stands still because it is being saved gets one when the
	// daemon dies.
	signal.Ignore(syscall.SIGHUP)
	gate()
	if i := slices.Index(os.Args, "boot"); i > 0 {
		spare()
		shed()
		makeNetwork()
		grantMemory(os.Args[i:])
	}
	if slices.Contains(os.Args, "gofer") {
		goOn()
	}
	if !slices.Contains(os.Args, "create") {
		thrift()
	}
	cli.Run(nil, commands, nil)
}

var commands = map[util.SubCommand]string{
	new(cmd.Create): "",
	// What it runs itself as, for each sandbox.
	new(cmd.Gofer):        "internal",
	new(sentrycmd.Boot):   "internal",
	new(sentrycmd.Umount): "internal",
	// For people who look into a sandbox.
	new(cmd.Debug): "debug",
	new(cmd.Exec):  "debug",
	new(cmd.List):  "debug",
}

// gate waits for a byte from the pipe whose number is in HUTCH_GATE: it comes
// when this process has been moved into the sandbox's control group, and all
// that it starts is born there. If it never comes, nobody waits for a sandbox.
func gate() {
	fd, err := strconv.Atoi(os.Getenv("HUTCH_GATE"))
	if err != nil {
		return
	}
	os.Unsetenv("HUTCH_GATE")
	os.Unsetenv("GOGC") // was for this process, that ends soon, alone
	pipe := os.NewFile(uintptr(fd), "gate")
	if _, err := pipe.Read(make([]byte, 1)); err != nil {
		os.Exit(1)
	}
	pipe.Close()
}

// The two ends of a sandbox's network device, as the daemon knows them (package
// gvisor): its own, and the one that it gives to the sandbox's stack.
const networkFD, deviceFD = 900, 901

// queue is how many packets may wait for their reader: as many as with a network
// device. The system's own number for messages, 10, would lose packets of
// programs that open a few connections at once.
const queue = 500

// makeNetwork makes the two ends, in the process of the sandbox, which keeps
// both of them: so a daemon finds its end there whenever it starts.
func makeNetwork() {
	if _, err := unix.FcntlInt(networkFD, unix.F_GETFD, 0); err == nil {
		return // this process has executed itself again
	}
	// The network namespace is this sandbox's own. Where the kernel keeps this
	// from ordinary users all the same, there are 10.
	_ = os.WriteFile("/proc/sys/net/unix/max_dgram_qlen", []byte(strconv.Itoa(queue)), 0)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fail("make a network device", err)
	}
	for i, fd := range []int{networkFD, deviceFD} {
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

// grantMemory sets what a booting sandbox takes for all the memory there is.
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

// memoryLimit reads linux.resources.memory.limit of a bundle; 0 is none.
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

// hurry is the signal by which the daemon says that a sandbox is about to be
// saved, or to go on as what was saved, for which gVisor makes a lot of garbage.
// It passes this one on to nobody.
const hurry = syscall.Signal(40)

// collect is the signal by which the daemon says that the sandbox is at its
// memory limit: its garbage goes back at once. It is passed on to nobody either.
const collect = syscall.Signal(41)

// thrift makes the long-lived processes small, of which there are two for each
// sandbox; but first, and when they are to hurry, they are quick.
func thrift() {
	hurries := make(chan os.Signal, 1)
	signal.Notify(hurries, hurry)
	collects := make(chan os.Signal, 1)
	signal.Notify(collects, collect)
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

// By how many percent the heap grows until garbage is collected.
const quick, small = 400, 40

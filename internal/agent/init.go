package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch/internal/wire"
)

// BootEnv is the environment variable that holds a [wire.Boot], as base64 of
// its JSON.
const BootEnv = "HUTCH_BOOT"

// TakeBoot reads the Boot from this process's environment, and removes it from
// there: what the agent starts must not find the token.
func TakeBoot() (wire.Boot, error) {
	text := os.Getenv(BootEnv)
	wipe(BootEnv, text)
	os.Unsetenv(BootEnv)
	if text == "" {
		return wire.Boot{}, fmt.Errorf("%s is not set: this program is started by hutch, inside a sandbox", BootEnv)
	}
	var boot wire.Boot
	b, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &boot)
	}
	if err != nil {
		return wire.Boot{}, fmt.Errorf("%s: %w", BootEnv, err)
	}
	return boot, nil
}

// wipe overwrites a variable where the kernel put it, which is what
// /proc/<pid>/environ shows. The environment lies behind the arguments, and
// the runtime keeps the arguments in place.
func wipe(name, value string) {
	if len(os.Args) == 0 || value == "" {
		return
	}
	size := 0
	for _, kv := range os.Environ() {
		size += len(kv) + 1
	}
	last := os.Args[len(os.Args)-1]
	env := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(last)), len(last)+1)), size)
	if i := strings.Index(unsafe.String(&env[0], size), name+"="+value); i >= 0 {
		clear(env[i+len(name)+1:][:len(value)])
	}
}

// Run is the life of the first process in a sandbox. It does not return while
// the agent can be reached.
func Run(boot wire.Boot) error {
	if boot.Version != wire.Version {
		return fmt.Errorf("boot speaks version %d of the protocol, this agent %d", boot.Version, wire.Version)
	}
	// A ptrace or a look into our memory would give the token away.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make undumpable: %w", err)
	}
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the host would handle the core
	syscall.Umask(0o022)
	thrift()
	defySignals()
	if boot.Hostname != "" {
		_ = setHostname(boot.Hostname) // where it may
	}
	ln, err := listen(boot.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", boot.Listen, err)
	}
	unix.CloseRange(3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	stockThreads()
	opt := Options{Init: os.Getpid() == 1, Rename: setHostname}
	if boot.Saved != "" {
		opt.Listen = func() (net.Listener, error) { return listen(boot.Listen) }
	}
	return Serve(context.Background(), ln, boot, opt)
}

// deadly are the signals that would end or stop the agent: see os/signal. The
// rest the Go runtime catches and drops by itself. All 59 would be as good, but
// to ask for one takes the runtime two changes of thread.
var deadly = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS,
	syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGSTKFLT, syscall.SIGSYS,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
}

// defySignals catches every signal that would end the agent, since everybody
// of its user may send them.
func defySignals() {
	signal.Notify(make(chan os.Signal, 1), deadly...) // nobody receives: they are dropped
}

// thrift makes the agent small rather than fast where the two differ.
func thrift() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
}

// spareThreads is how many system calls may be slow at once before the runtime
// needs a thread that it has not.
const spareThreads = 6

// stockThreads makes threads for later. The runtime keeps them, and ends the
// program if it cannot make one when it needs it: when a fork bomb has used up
// the pids, that is.
func stockThreads() {
	var ready, done sync.WaitGroup
	ready.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread() // to wait with its thread, not without
			defer runtime.UnlockOSThread()
			ready.Done()
			ready.Wait()
		})
	}
	done.Wait()
}

// listen opens what Boot.Listen names.
func listen(where string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		return net.Listen("unix", path)
	}
	number, ok := strings.CutPrefix(where, "fd:")
	fd, err := strconv.Atoi(number)
	if !ok || err != nil || fd < 3 {
		return nil, fmt.Errorf("neither fd:N nor unix:path")
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close() // the listener has a descriptor of its own
	return net.FileListener(f)
}

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

	"hutch/internal/linux/creds"
	"hutch/internal/wire"
)

// BootEnv is the environment variable that holds a [wire.Boot], as base64 of
// its JSON.
const BootEnv = "HUTCH_BOOT"

// TakeBoot reads the Boot from this process's environment, and removes it there, so that programs which the agent
// starts do not find the token.
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

// wipe overwrites a variable in the process's memory, which is what /proc/<pid>/environ shows. The environment
// follows the arguments, and the runtime keeps the arguments in place.
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

// Run is the main loop of the first process in a sandbox. It returns only when the agent can no longer be reached.
func Run(boot wire.Boot) error {
	if boot.Version != wire.Version {
		return fmt.Errorf("boot speaks version %d of the protocol, this agent %d", boot.Version, wire.Version)
	}
	// Otherwise ptrace, or reading our memory, would reveal the token.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make undumpable: %w", err)
	}
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // otherwise the host would process a core dump
	syscall.Umask(0o022)
	preferSmall()
	catchFatalSignals()
	if boot.Hostname != "" {
		_ = setHostname(boot.Hostname) // fails without the right to do it
	}
	ln, err := openListener(boot.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", boot.Listen, err)
	}
	unix.CloseRange(3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	stockThreads()
	first := os.Getpid() == 1 || boot.Alone
	opt := Options{Init: first, Alone: first, Rename: setHostname}
	if boot.Saved != "" {
		opt.Listen = func() (net.Listener, error) { return openListener(boot.Listen) }
	}
	return Serve(context.Background(), ln, boot, opt)
}

// fatalSignals are the signals that would end or stop the agent: see os/signal. The Go runtime catches and drops the others
// itself. Catching all 59 would work too, but each costs the runtime two thread switches.
var fatalSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS,
	syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGSTKFLT, syscall.SIGSYS,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
}

// catchFatalSignals catches every signal that would end the agent, because every process of its user can send them.
func catchFatalSignals() {
	signal.Notify(make(chan os.Signal, 1), fatalSignals...) // no goroutine receives, so they are dropped
}

// preferSmall prefers a small agent to a fast one.
func preferSmall() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
}

// spareThreads is how many system calls can be slow at once before the runtime needs a new thread.
const spareThreads = 6

// stockThreads starts threads for later. The runtime keeps them. Without them, the runtime ends the program when it
// needs a new thread and cannot start one, because a fork bomb has used up the pids.
func stockThreads() {
	var ready, done sync.WaitGroup
	ready.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread() // so that each goroutine occupies its own thread
			defer runtime.UnlockOSThread()
			ready.Done()
			ready.Wait()
		})
	}
	done.Wait()
}

// listenUnix makes a socket that belongs to root, even if the agent has another id: the socket's folder is in a file
// system of the host, where the agent's id might not exist.
func listenUnix(path string) (ln net.Listener, err error) {
	if os.Geteuid() != wire.AgentID {
		return net.Listen("unix", path)
	}
	err = creds.DoWith(0, 0, 1<<unix.CAP_DAC_OVERRIDE, func() error {
		ln, err = net.Listen("unix", path)
		return err
	})
	return ln, err
}

// openListener opens what Boot.Listen names.
func openListener(where string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		return listenUnix(path)
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

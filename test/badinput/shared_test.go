package badinput

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch"
)

// resourceHogs are programs that take as much as possible of something that the kernel counts for a user or for the
// machine, and keep it. Each defines a function take, which takes one more and raises an error when there are none
// left.
var resourceHogs = map[string]string{
	"inotify instances": `
def take(): ok(libc.inotify_init())`,
	"inotify watches": `
fd = ok(libc.inotify_init())
n = 0
def take():
    global n
    path = "/tmp/watched/%d" % n
    n += 1
    os.makedirs(path)
    ok(libc.inotify_add_watch(fd, path.encode(), 0xfff))
    if n == 20000: raise OSError(0, "enough")`,
	"queued signals": `
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 3])
info = struct.pack("iiiiii", signal.SIGRTMIN + 3, 0, -1, 0, os.getpid(), os.getuid()) + bytes(104)
def take(): ok(libc.syscall(129, os.getpid(), signal.SIGRTMIN + 3, info))`,
	"timers": `
event = struct.pack("QiiQ", 0, 0, 1, 0) + bytes(48)
def take(): ok(libc.syscall(222, 1, event, ctypes.byref(ctypes.c_int())))`,
	"message queues": `
n = 0
def take():
    global n
    n += 1
    ok(libc.syscall(240, b"hoard%d" % n, os.O_CREAT | os.O_RDWR, 0o600, None))`,
	"asynchronous reads": `
def take(): ok(libc.syscall(206, 128, ctypes.byref(ctypes.c_ulong())))`,
	"terminals": `
def take(): os.openpty()`,
}

const hogPrelude = `
import ctypes, os, resource, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def ok(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
`

// hogLoop calls take until it fails, prints how often it succeeded, and keeps everything that it has taken.
const hogLoop = `
taken = 0
try:
    while taken < MOST:
        take()
        taken += 1
except OSError as e: pass
print("full after", taken, flush=True)
time.sleep(300)`

// most is how often take is called at most: on gVisor, all that it takes is in the sandbox's own memory.
var most = map[string]string{"native": "200000", "gvisor": "500"}

// A sandbox that hoards kernel resources takes none from the host, from its neighbours or from later sandboxes.
func TestResourceHogs(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		for name, source := range resourceHogs {
			t.Run(name, func(t *testing.T) {
				id := b.sandbox(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 256}})
				t.Log(b.keep(t, id, hogPrelude+source+strings.Replace(hogLoop, "MOST", most[b.runtime], 1)))
				spared(t)
				one := hogPrelude + source + "\ntry: take()\nexcept OSError as e:\n    if e.errno != 38: raise\nprint('spared')"
				if out := b.python(t, b.neighbour, one); out != "spared\n" {
					t.Errorf("the neighbour has none: %s", out)
				}
				began := time.Now()
				later := b.sandbox(t, hutch.CreateRequest{})
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("a create took %v meanwhile", took)
				}
				if out := b.python(t, later, one); out != "spared\n" {
					t.Errorf("a sandbox that was made meanwhile has none: %s", out)
				}
				b.checkWorks(t, b.neighbour)
			})
		}
	})
}

// keep runs a program until the test ends, and returns its first line.
func (b *bed) keep(t *testing.T, id, source string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var said strings.Builder
	line, ended := make(chan string, 1), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(ended)
		r, err := b.Exec(ctx, id, hutch.ExecRequest{Language: "python", Command: source, Timeout: 600}, func(o hutch.Output) error {
			said.Write(o.Data)
			if strings.Contains(said.String(), "\n") {
				once.Do(func() { line <- said.String() })
			}
			return nil
		})
		if ctx.Err() == nil {
			t.Errorf("the program ended: exit code %d, limit %q, %v\n%s%s", r.ExitCode, r.Limit, err, r.Stdout, r.Stderr)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case first := <-line:
		return strings.TrimSpace(first)
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Error("the program is never full")
	}
	t.FailNow()
	return ""
}

// python returns what a program prints, with its errors.
func (b *bed) python(t *testing.T, id, source string) string {
	t.Helper()
	r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Language: "python", Command: source}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout) + string(r.Stderr)
}

// spared checks that a program of the host, this one, can still get each of the hoarded resources.
func spared(t *testing.T) {
	t.Helper()
	if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
		t.Errorf("no inotify for the host: %v", err)
	} else {
		if _, err := unix.InotifyAddWatch(fd, t.TempDir(), unix.IN_OPEN); err != nil {
			t.Errorf("no watch for the host: %v", err)
		}
		unix.Close(fd)
	}
	var timer int32
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&timer))); errno != 0 {
		t.Errorf("no timer, which takes a queued signal, for the host: %v", errno)
	} else {
		unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(timer), 0, 0)
	}
	var aio uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&aio)), 0); errno != 0 {
		t.Errorf("no asynchronous reads for the host: %v", errno)
	} else {
		unix.Syscall(unix.SYS_IO_DESTROY, aio, 0, 0)
	}
	if fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0); err == nil {
		unix.Close(fd)
	} else if err != unix.ENOENT && err != unix.EACCES {
		t.Errorf("no terminal for the host: %v", err)
	}
}

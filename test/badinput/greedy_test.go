package badinput

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/linux/cgroup"
)

// flood is how many bytes a program prints: more than the agent reads without a pause, and more than is kept of the
// output.
const flood = 320 << 20

// greedy are programs that take, break or ignore everything that they can.
var greedy = []struct {
	name   string
	limits hutch.Limits
	req    hutch.ExecRequest
	// ends returns what it expected if the program ended in another way, or "". The argument sent is how many bytes the
	// caller received. In any case, everything must work afterwards.
	ends func(r hutch.ExecResult, err error, sent int64) string
	// after is a command that frees what the program took.
	after string
}{
	{
		name: "a flood of output",
		req:  hutch.ExecRequest{Command: fmt.Sprintf("head -c %d /dev/zero", flood), Timeout: 120},
		ends: func(r hutch.ExecResult, err error, sent int64) string {
			return unless(err == nil && r.ExitCode == 0 && !r.TimedOut && r.Truncated && sent == flood && len(r.Stdout) == 1<<20, "all of it, and a bounded result")
		},
	},
	{
		name: "tiny writes",
		req:  hutch.ExecRequest{Language: "python", Command: "import os\nfor i in range(20000): os.write(1 + i % 2, b'x')", Timeout: 60},
		ends: func(r hutch.ExecResult, err error, sent int64) string {
			return unless(err == nil && r.Success() && sent == 20000 && len(r.Stdout) == 10000 && len(r.Stderr) == 10000, "every byte")
		},
	},
	{
		name: "bytes that are no text",
		req:  hutch.ExecRequest{Language: "python", Command: "import os\nos.write(1, bytes(range(256)) * 100 + b'\\xff\\xfe\\xc0\\x80')"},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			var all []byte
			for c := range 256 {
				all = append(all, byte(c))
			}
			return unless(err == nil && bytes.Equal(r.Stdout, append(bytes.Repeat(all, 100), "\xff\xfe\xc0\x80"...)), "every byte as it was")
		},
	},
	{
		name: "orders for a terminal",
		req:  hutch.ExecRequest{Command: `printf '\033[2J\033]0;owned\007\033P\033\\\r\033[6n\x9b31m\0'`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && string(r.Stdout) == "\x1b[2J\x1b]0;owned\a\x1bP\x1b\\\r\x1b[6n\x9b31m\x00", "every byte as it was")
		},
	},
	{
		name: "no descriptors",
		req:  hutch.ExecRequest{Command: "exec 0<&- 1>&- 2>&-; sleep 0.5; exit 7"},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && r.ExitCode == 7, "exit code 7")
		},
	},
	{
		name: "a double fork",
		req: hutch.ExecRequest{Language: "python", Timeout: 2, Command: `
import os, time
for _ in range(2):
    if os.fork(): os._exit(0) if os.getpid() != 2 else None
    os.setsid()
os.environ.clear()
time.sleep(1000)`},
		ends: func(hutch.ExecResult, error, int64) string { return "" },
	},
	{
		name: "no ear for SIGTERM",
		req:  hutch.ExecRequest{Command: `trap '' TERM INT HUP QUIT USR1; echo deaf; while :; do sleep 1; done`, Timeout: 1},
		ends: timedOut("deaf\n"),
	},
	{
		name: "a program that stops itself",
		req:  hutch.ExecRequest{Command: `echo stop; kill -STOP $$; echo on`, Timeout: 1},
		ends: timedOut("stop\n"),
	},
	{
		name: "a fork bomb",
		req:  hutch.ExecRequest{Command: `echo tick; bomb() { bomb | bomb & }; bomb; sleep 100`, Timeout: 3},
		ends: timedOut("tick\n"),
	},
	{
		name: "a fork bomb in little memory", limits: hutch.Limits{Memory: 256},
		req: hutch.ExecRequest{Command: `echo tick; bomb() { bomb | bomb & }; bomb; sleep 100`, Timeout: 3},
		ends: func(r hutch.ExecResult, err error, _ int64) string { // at its limit gVisor has no CPU time for the agent on a busy host
			return unless(err == nil && (r.TimedOut || r.Limit == "memory") || hutch.KindOf(err) == hutch.Unavailable,
				"the time limit, the memory limit, or that the sandbox did not answer")
		},
	},
	{
		name: "a fork bomb that keeps forking", limits: hutch.Limits{PIDs: 32},
		req: hutch.ExecRequest{Language: "python", Timeout: 3, Command: `
import os
print("tick", flush=True)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass`},
		ends: func(r hutch.ExecResult, err error, _ int64) string { // on gVisor, memory can run out first
			return unless(err == nil && r.TimedOut && string(r.Stdout) == "tick\n" || errors.Is(err, hutch.Exhausted), "the time limit, or the memory limit")
		},
	},
	{
		name: "threads without end", limits: hutch.Limits{PIDs: 128},
		req: hutch.ExecRequest{Language: "python", Timeout: 20, Command: `
import threading, time
n = 0
try:
    while n < 100000:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        n += 1
except RuntimeError as e: print("refused", flush=True)
import os; os._exit(3)`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && r.ExitCode == 3 && string(r.Stdout) == "refused\n", "a refusal")
		},
	},
	{
		name: "a disk that is full at the end", limits: hutch.Limits{Disk: 64},
		req:   hutch.ExecRequest{Timeout: 60, Command: `head -c 10G /dev/zero > /workspace/big`},
		after: "rm /workspace/big",
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && r.ExitCode == 1 && r.Limit == "disk", "a result that names the limit")
		},
	},
	{
		name: "more processes than the limit", limits: hutch.Limits{PIDs: 64},
		req: hutch.ExecRequest{Timeout: 60, Language: "python", Command: `
import os, sys, time
children = []
while len(children) < 1000:
    try: child = os.fork()
    except OSError as e:
        for c in children: os.kill(c, 9)
        sys.exit("fork: " + e.strerror)
    if child == 0: time.sleep(1000)
    children.append(child)`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && r.ExitCode == 1 && r.Limit == "pids", "a result that names the limit")
		},
	},
	{
		name: "a full disk", limits: hutch.Limits{Disk: 64},
		req: hutch.ExecRequest{Timeout: 60, Command: `head -c 10G /dev/zero > /workspace/big; e=$?; ls -s /workspace/big | cut -d' ' -f1; rm /workspace/big; exit $e`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && r.ExitCode == 1 && strings.Contains(string(r.Stderr), "No space left"), "an error that says there is no space left")
		},
	},
	{
		name: "files without end", limits: hutch.Limits{Disk: 64, Memory: 256},
		req: hutch.ExecRequest{Language: "python", Timeout: 10, Command: `
import os
os.mkdir("/tmp/many")
try:
    for i in range(10**8): os.close(os.open("/tmp/many/%d" % i, os.O_CREAT))
except OSError as e:
    print(e.strerror)`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil || errors.Is(err, hutch.Exhausted), "a refusal, the time limit, or the memory limit")
		},
	},
	{
		name: "all memory", limits: hutch.Limits{Memory: 128},
		req: hutch.ExecRequest{Language: "python", Timeout: 60, Command: `
x = []
while len(x) < 1 << 10: x.append(b'x' * (1 << 20))
exit(9)`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			if _, unlimited := cgroup.Find(); unlimited != nil {
				return unless(err == nil, "an end of its own, for lack of a limit")
			}
			return unless(err == nil && r.Limit == "memory" || errors.Is(err, hutch.Exhausted), "an end that names the memory limit")
		},
	},
	{
		name: "all memory, as files", limits: hutch.Limits{Memory: 128},
		req: hutch.ExecRequest{Timeout: 60, Command: "head -c 10G /dev/zero > /dev/shm/big; rm -f /dev/shm/big"},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && !r.TimedOut || errors.Is(err, hutch.Exhausted), "a refusal, or an end that names the memory limit")
		},
	},
	{
		name: "files open without end",
		req: hutch.ExecRequest{Language: "python", Timeout: 30, Command: `
import os
fds = []
try:
    while True: fds.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    os.write(1, e.strerror.encode())`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && strings.HasPrefix(string(r.Stdout), "Too many open files"), "a refusal")
		},
	},
	{
		name: "every processor",
		req:  hutch.ExecRequest{Command: `echo spin; for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait`, Timeout: 3},
		ends: timedOut("spin\n"),
	},
	{
		name: "signals for everyone",
		req:  hutch.ExecRequest{Command: `trap '' TERM; for s in TERM HUP INT QUIT ABRT SEGV USR1 STOP KILL; do kill -$s 1; done; echo shot; kill -9 -1`, Timeout: 10},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && !r.TimedOut && strings.HasPrefix(string(r.Stdout), "shot"), "an end of its own only")
		},
	},
	{
		name: "a stack without end",
		req:  hutch.ExecRequest{Command: `f() { f; }; f`, Timeout: 20},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil && (r.ExitCode != 0 || r.TimedOut) || errors.Is(err, hutch.Exhausted), "an end")
		},
	},
	{
		name: "folders without end",
		req:  hutch.ExecRequest{Timeout: 2, Command: `cd /tmp; while mkdir d && cd d; do :; done`},
		ends: func(r hutch.ExecResult, err error, _ int64) string {
			return unless(err == nil, "a refusal or the time limit")
		},
	},
}

// unless returns wanted, or "" if ok.
func unless(ok bool, wanted string) string {
	if ok {
		return ""
	}
	return wanted
}

func timedOut(said string) func(hutch.ExecResult, error, int64) string {
	return func(r hutch.ExecResult, err error, _ int64) string {
		return unless(err == nil && r.TimedOut && strings.HasPrefix(string(r.Stdout), said), fmt.Sprintf("the time limit, and %q", said))
	}
}

// grace is how long after its time limit a program can end on a busy host: the daemon's own grace period, and a little
// more.
const grace = 33 * time.Second

func TestGreedyPrograms(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		for _, g := range greedy {
			t.Run(g.name, func(t *testing.T) {
				id := b.sandbox(t, hutch.CreateRequest{Limits: g.limits})
				leave := b.watch(t)
				var sent int64
				began := time.Now()
				r, err := b.Exec(t.Context(), id, g.req, func(o hutch.Output) error {
					sent += int64(len(o.Data))
					return nil
				})
				took := time.Since(began)
				leave()
				if g.after != "" {
					if _, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: g.after}, nil); err != nil {
						t.Error(err)
					}
				}
				if wanted := g.ends(r, err, sent); wanted != "" {
					t.Errorf("want %s; got exit code %d, limit %q, timed out %v, truncated %v, %v, %d bytes sent, stdout %.200q, stderr %.500q",
						wanted, r.ExitCode, r.Limit, r.TimedOut, r.Truncated, err, sent, r.Stdout, r.Stderr)
				}
				if limit := g.req.Timeout.Duration(); limit > 0 && took > limit+grace {
					t.Errorf("it took %v, with a limit of %v", took, limit)
				}
				t.Logf("%v: exit code %d, limit %q, timed out %v, %v", took.Round(time.Millisecond), r.ExitCode, r.Limit, r.TimedOut, err)
				if s, serr := b.Sandbox(t.Context(), id); serr != nil || s.Status == hutch.Running {
					b.checkWorks(t, id)
				} else if err == nil {
					t.Errorf("the sandbox is %s (%s), and the call says nothing of it", s.Status, s.Reason)
				}
				b.checkWorks(t, b.neighbour)
			})
		}
	})
}

// A hundred clients use one sandbox and leave at any moment.
func TestClientsThatLeave(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		id := b.sandbox(t, hutch.CreateRequest{})
		var clients sync.WaitGroup
		var left, stayed atomic.Int32
		for n := range 100 {
			clients.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Millisecond)
				defer cancel()
				r, err := b.Exec(ctx, id, hutch.ExecRequest{Command: fmt.Sprintf("echo %d; sleep 0.%d & seq 1000; sleep 0.5; wait", n, n%10), Timeout: 60}, nil)
				switch {
				case ctx.Err() != nil:
					left.Add(1)
				case err != nil || !r.Success():
					t.Errorf("client %d: exit code %d, %v, %.200q", n, r.ExitCode, err, r.Stderr)
				default:
					stayed.Add(1)
				}
			})
		}
		clients.Wait()
		t.Logf("%d left, %d stayed", left.Load(), stayed.Load())
		b.checkWorks(t, id)
		end := time.Now().Add(30 * time.Second)
		for {
			r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "cat /proc/[0-9]*/comm | grep -cE 'sleep|seq' || true"}, nil)
			if err == nil && string(r.Stdout) == "0\n" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("what the clients started still runs: %s, %v", r.Stdout, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

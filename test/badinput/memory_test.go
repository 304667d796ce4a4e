package badinput

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/linux/cgroup"
)

var memoryRounds = flag.Int("memory-rounds", 1, "how often each program of TestMemoryLimit is run")

// memoryHog is a program that uses up all memory in one way.
type memoryHog struct {
	name, language, code string
	// spared is true if another limit can end the program first.
	spared bool
	// gvisor is true if only gVisor can attribute this memory to a program. On native, the kernel ends single
	// processes, possibly others of the sandbox.
	gvisor bool
}

var memoryHogs = []memoryHog{
	{name: "at once", language: "python", code: `x = bytearray(900 << 20)`},
	{name: "populated", language: "python", code: `
import mmap
keep = [mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000) for _ in range(16)]`},
	{name: "slowly", language: "python", code: `
import time
x = []
for _ in range(1000): x.append(b"x" * (2 << 20)); time.sleep(0.005)`},
	{name: "many small processes", language: "python", gvisor: true, code: `
import os, time
for _ in range(120):
    if os.fork() == 0:
        x = bytearray(10 << 20)
        time.sleep(100)
time.sleep(100)`},
	{name: "processes that leave their parent", language: "python", gvisor: true, code: `
import os, time
for _ in range(60):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        x = bytearray(20 << 20)
        time.sleep(100)
time.sleep(100)`},
	{name: "files without a name", language: "python", gvisor: true, code: `
import os
fd = os.memfd_create("x")
for _ in range(900): os.write(fd, b"x" * (1 << 20))`},
	{name: "pipes", language: "python", spared: true, gvisor: true, code: `
import os, fcntl, resource, time
keep = []
try:
    while True:
        r, w = os.pipe()
        fcntl.fcntl(w, 1031, 1 << 20)
        os.set_blocking(w, False)
        keep.append((r, w))
        while True: os.write(w, b"x" * 65536)
except BlockingIOError: pass
try:
    while True:
        r, w = os.pipe(); os.set_blocking(w, False); keep.append((r, w))
        try: fcntl.fcntl(w, 1031, 1 << 20)
        except OSError: pass
        try:
            while True: os.write(w, b"x" * 65536)
        except BlockingIOError: pass
except OSError: print("refused")`},
	{name: "sockets", language: "python", spared: true, gvisor: true, code: `
import socket
keep = []
try:
    while True:
        a, b = socket.socketpair()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        a.setblocking(False)
        keep.append((a, b))
        try:
            while True: a.send(b"x" * 65536)
        except BlockingIOError: pass
except OSError: print("refused")`},
	{name: "sockets of a small program", language: "c", spared: true, gvisor: true, code: `
#include <fcntl.h>
#include <sys/socket.h>
static char x[65536];
int main() {
	for (;;) {
		int s[2], n = 4 << 20;
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, s)) return 1;
		setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &n, sizeof n);
		fcntl(s[0], F_SETFL, O_NONBLOCK);
		while (send(s[0], x, sizeof x, 0) > 0);
	}
}`},
	{name: "pandas", code: `exec /usr/bin/python3 -c '
import numpy, pandas
keep = []
while True: keep.append(pandas.DataFrame(numpy.ones((500_000, 10))))'`},
	{name: "page tables", language: "c", spared: true, gvisor: true, code: `
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main() { // each of 16 processes maps one page 60,000 times, 2 MiB apart
	int fd = memfd_create("page", 0);
	if (ftruncate(fd, 4096)) return 1;
	for (int p = 0; p < 16; p++) {
		if (fork()) continue;
		for (long i = 0; i < 60000; i++) {
			char *at = mmap((char *)0x100000000000 + i * (2L << 20), 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
			if (at == MAP_FAILED) break;
			*(volatile char *)at;
		}
		sleep(100);
	}
	while (wait(0) > 0);
}`},
	{name: "files in memory", spared: true, code: `head -c 10G /dev/zero > /dev/shm/big; rm -f /dev/shm/big`},
}

// A program that reaches the memory limit ends, and its result says so. The sandbox continues, with its files,
// sessions, contexts and servers.
func TestMemoryLimit(t *testing.T) {
	if _, unlimited := cgroup.Find(); unlimited != nil {
		t.Skip(unlimited)
	}
	each(t, func(t *testing.T, b *bed) {
		for _, g := range memoryHogs {
			t.Run(g.name, func(t *testing.T) {
				if g.gvisor && b.runtime != "gvisor" {
					b.survives(t, g)
					return
				}
				id := b.sandbox(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 512}})
				b.putThings(t, id)
				for round := range *memoryRounds {
					began := time.Now()
					r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Language: g.language, Command: g.code, Timeout: 60}, nil)
					t.Logf("%v: exit code %d, limit %q, %v", time.Since(began).Round(time.Millisecond), r.ExitCode, r.Limit, err)
					refused := g.spared && err == nil && !r.TimedOut
					if !refused && (err != nil || r.Limit != "memory") {
						t.Fatalf("round %d: want an end that names the memory limit; got exit code %d, limit %q, timed out %v, %v, %.300q", round, r.ExitCode, r.Limit, r.TimedOut, err, r.Stderr)
					}
					b.checkThings(t, id)
				}
			})
		}
	})
}

// survives checks that a sandbox and its files outlive a greedy program.
func (b *bed) survives(t *testing.T, g memoryHog) {
	id := b.sandbox(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 512}})
	if r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "echo precious > /workspace/notes.txt"}, nil); err != nil || !r.Success() {
		t.Fatalf("write its file: exit code %d, %v, %s", r.ExitCode, err, r.Stderr)
	}
	r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Language: g.language, Command: g.code, Timeout: 10}, nil)
	t.Logf("exit code %d, limit %q, timed out %v, %v", r.ExitCode, r.Limit, r.TimedOut, err)
	b.checkWorks(t, id)
	r, err = b.Exec(t.Context(), id, hutch.ExecRequest{Command: "cat /workspace/notes.txt"}, nil)
	if err != nil || string(r.Stdout) != "precious\n" {
		t.Errorf("its file: %q, %v", r.Stdout, err)
	}
}

// A session's command that reaches the memory limit ends; the session continues.
func TestMemoryLimitInASession(t *testing.T) {
	if _, unlimited := cgroup.Find(); unlimited != nil {
		t.Skip(unlimited)
	}
	each(t, func(t *testing.T, b *bed) {
		id := b.sandbox(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 512}})
		b.putThings(t, id)
		r, err := b.Exec(t.Context(), id, hutch.ExecRequest{SessionID: "shell", Command: `python3 -c "x = bytearray(900 << 20)"`}, nil)
		if err != nil || r.Limit != "memory" {
			t.Errorf("exit code %d, limit %q, %v", r.ExitCode, r.Limit, err)
		}
		b.checkThings(t, id)
		_, err = b.RunCode(t.Context(), id, hutch.RunRequest{ContextID: "greedy", Language: "python", Code: "x = bytearray(900 << 20)"}, nil)
		if e := hutch.AsError(err); e.Kind != hutch.Exhausted || e.Data["limit"] != "memory" {
			t.Errorf("a context that takes all memory: %v", err)
		}
		b.checkThings(t, id)
	})
}

// putThings puts into a sandbox what must survive a greedy program.
func (b *bed) putThings(t *testing.T, id string) {
	t.Helper()
	ctx := t.Context()
	run := func(r hutch.ExecRequest) {
		t.Helper()
		if res, err := b.Exec(ctx, id, r, nil); err != nil || !res.Success() {
			t.Fatalf("%q: exit code %d, %v, %s", r.Command, res.ExitCode, err, res.Stderr)
		}
	}
	run(hutch.ExecRequest{Command: "echo precious > /workspace/notes.txt"})
	run(hutch.ExecRequest{SessionID: "shell", Command: "kept=variable"})
	if _, err := b.RunCode(ctx, id, hutch.RunRequest{ContextID: "code", Language: "python", Code: "kept = 42"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.StartProcess(ctx, id, hutch.ProcessRequest{Name: "server", Command: "cd /workspace && exec python3 -m http.server 8000"}); err != nil {
		t.Fatal(err)
	}
	b.checkThings(t, id)
}

// checkThings checks that everything still exists.
func (b *bed) checkThings(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wrong []string
	want := func(what, got, want string, err error) {
		if err != nil || strings.TrimSpace(got) != want {
			wrong = append(wrong, fmt.Sprintf("%s: %q, %v", what, got, err))
		}
	}
	for {
		wrong = nil
		r, err := b.Exec(ctx, id, hutch.ExecRequest{Command: "cat /workspace/notes.txt"}, nil)
		want("the file", string(r.Stdout), "precious", err)
		r, err = b.Exec(ctx, id, hutch.ExecRequest{SessionID: "shell", Command: "echo $kept"}, nil)
		want("the session", string(r.Stdout), "variable", err)
		run, err := b.RunCode(ctx, id, hutch.RunRequest{ContextID: "code", Language: "python", Code: "print(kept)"}, nil)
		want("the context", string(run.Stdout), "42", err)
		r, err = b.Exec(ctx, id, hutch.ExecRequest{Command: "exec 3<>/dev/tcp/127.0.0.1/8000 && printf 'GET /notes.txt HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3"}, nil)
		want("the server", string(r.Stdout), "precious", err)
		if len(wrong) == 0 {
			return
		}
		if ctx.Err() != nil || strings.HasPrefix(wrong[0], "the file") {
			t.Fatalf("the sandbox is not as it was: %s", strings.Join(wrong, "; "))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// The limit also holds in a copy, in its original, and after a pause.
func TestMemoryLimitOfACopy(t *testing.T) {
	if _, unlimited := cgroup.Find(); unlimited != nil {
		t.Skip(unlimited)
	}
	t.Parallel()
	b := &bed{runtime: "gvisor", Service: hutchtest.Engine(t, "gvisor", nil)}
	id := b.sandbox(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 512}})
	b.putThings(t, id)
	copies, err := b.Fork(t.Context(), id, hutch.ForkRequest{Count: 1})
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	b.limited(t, "a fork", copies[0].ID)
	b.limited(t, "what was forked", id)
	if _, err := b.Snapshot(t.Context(), id, hutch.SnapshotRequest{Name: "template"}); err != nil {
		t.Fatal(err)
	}
	b.limited(t, "of a template", b.sandbox(t, hutch.CreateRequest{Snapshot: "template"}))
	if _, err := b.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.limited(t, "one that was paused", id)
}

// limited checks that a program that takes all memory of a sandbox is ended, and that everything from putThings
// remains.
func (b *bed) limited(t *testing.T, what, id string) {
	t.Helper()
	r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Language: "python", Command: "x = bytearray(900 << 20)", Timeout: 60}, nil)
	if err != nil || r.Limit != "memory" {
		t.Errorf("%s: exit code %d, limit %q, %v", what, r.ExitCode, r.Limit, err)
	}
	b.checkThings(t, id)
}

// guarded makes an engine on gVisor, where the agent ends the greediest program. Without control groups, as for an
// ordinary user, the daemon counts a sandbox's memory itself.
func guarded(t *testing.T, change func(*engine.Options)) *bed {
	t.Helper()
	t.Parallel()
	b := &bed{runtime: "gvisor"}
	e := hutchtest.Engine(t, "gvisor", change)
	b.Service, b.engine = e, e
	return b
}

// The limit also holds after a wake from hibernation.
func TestMemoryGuardAfterAWake(t *testing.T) {
	b := guarded(t, nil)
	id := b.sandbox(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 512}})
	b.putThings(t, id)
	soon := hutch.Seconds(0.3)
	if _, err := b.Update(t.Context(), id, hutch.UpdateRequest{SleepAfter: &soon}); err != nil {
		t.Fatal(err)
	}
	b.until(t, "asleep", func() (bool, error) {
		s, err := b.Sandbox(t.Context(), id)
		return s.Status == hutch.Hibernated, err
	})
	later := hutch.Seconds(600)
	if _, err := b.Update(t.Context(), id, hutch.UpdateRequest{SleepAfter: &later}); err != nil {
		t.Fatal(err)
	}
	b.limited(t, "one that has slept", id)
}

// The limit also holds in a sandbox that was made in advance.
func TestMemoryGuardFromThePool(t *testing.T) {
	b := guarded(t, func(o *engine.Options) { o.Pool = engine.Pool{Max: 2, Min: 1} })
	b.until(t, "a sandbox is ready", func() (bool, error) { return b.engine.PoolState().Ready > 0, nil })
	id := b.sandbox(t, hutch.CreateRequest{})
	if p := b.engine.PoolState(); p.Hits != 1 {
		t.Errorf("it is not from the pool: %+v", p)
	}
	b.putThings(t, id)
	b.limited(t, "one from the pool", id)
}

// until waits for something to become true.
func (b *bed) until(t *testing.T, what string, as func() (bool, error)) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ok, err := as()
		if ok {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("not %s, %v", what, err)
		}
	}
}

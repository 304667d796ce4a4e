// Package hibernate puts real sandboxes to sleep, with their running programs, and checks that nothing is lost: after
// they wake, if the daemon dies at any step, if a caller arrives in between, if the disk is full, and if the host has
// changed meanwhile.
package hibernate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/disk"
)

const patience = 60 * time.Second

// counter answers every connection to its port with a number, one more each time. As long as it continues to count,
// its memory and its listener are alive.
const counter = `exec python3 -c '
import os, socket
s = socket.create_server(("127.0.0.1", 8123))
n = 0
while True:
    c, _ = s.accept()
    n += 1
    c.sendall(b"%d" % n)
    c.close()
    os.write(1, b"said %d\n" % n)
'`

const count = `python3 -c '
import socket, time
for _ in range(600):
    try:
        print(socket.create_connection(("127.0.0.1", 8123)).recv(9).decode()); break
    except OSError: time.sleep(0.1)
'`

// room is an engine on gVisor, with helpers for tests.
type room struct {
	*engine.Engine
	dir string
}

func newRoom(t *testing.T) room {
	t.Helper()
	t.Parallel()
	r := room{}
	r.Engine = hutchtest.Engine(t, "gvisor", func(o *engine.Options) { r.dir = o.Dir })
	return r
}

// sleeper makes a sandbox that sleeps soon, with a counter that has answered 1.
func (r room) sleeper(t *testing.T, req hutch.CreateRequest) (id, process string) {
	t.Helper()
	req.SleepAfter = 0.5
	sb, err := r.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID, r.count(t, sb.ID)
}

// count starts a counter, and reads 1 from it.
func (r room) count(t *testing.T, id string) (process string) {
	t.Helper()
	p, err := r.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: counter, Name: "counter"})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.run(t, id, count); got != "1" {
		t.Fatalf("the counter says %q", got)
	}
	return p.ID
}

func (r room) run(t *testing.T, id, command string) string {
	t.Helper()
	output, err := r.try(t, id, command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return output
}

func (r room) try(t *testing.T, id, command string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := r.Exec(ctx, id, hutch.ExecRequest{Command: command}, nil)
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr)), err
}

// until waits for a status, without waking the sandbox. It asks rarely: each check uses CPU time in the sandbox, and a
// sandbox that uses a tenth of a core counts as busy.
func (r room) until(t *testing.T, id string, want hutch.Status) hutch.Sandbox {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		sb, err := r.Sandbox(t.Context(), id)
		if errors.Is(err, hutch.NotFound) {
			sb.Status = hutch.Destroyed
		}
		if sb.Status == want {
			return sb
		}
		if time.Now().After(end) {
			t.Fatalf("it is %s (%s), not %s: %v", sb.Status, sb.Reason, want, err)
		}
	}
}

// pool waits until the pool has the expected state.
func (r room) pool(t *testing.T, as func(hutch.PoolState) bool) hutch.PoolState {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		state := r.PoolState()
		if as(state) {
			return state
		}
		if time.Now().After(end) {
			t.Fatalf("the pool is %+v", state)
		}
	}
}

func TestEverythingSleeps(t *testing.T) {
	r := newRoom(t)
	id, process := r.sleeper(t, hutch.CreateRequest{})
	r.run(t, id, "echo kept > /workspace/file; mkfifo /tmp/pipe")
	if _, err := r.Wait(t.Context(), id, process, hutch.WaitRequest{Text: "said 1"}); err != nil {
		t.Fatal(err)
	}
	_, began := r.log(t, hutch.LogsRequest{SandboxID: id, ProcessID: process, Times: true})
	if _, err := r.RunCode(t.Context(), id, hutch.RunRequest{Language: "python", Code: "x = 41"}, nil); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		sb := r.until(t, id, hutch.Hibernated)
		if sb.Health != hutch.Asleep || sb.Uptime != 0 || len(sb.Processes) != 1 || sb.Processes[0].ID != process {
			t.Errorf("asleep: %+v", sb)
		}
		ps, err := r.Processes(t.Context(), id)
		if err != nil || len(ps) != 1 || ps[0].Name != "counter" {
			t.Errorf("its processes: %+v, %v", ps, err)
		}
		if cs, err := r.Contexts(t.Context(), id); err != nil || len(cs) != 1 || cs[0].Language != "python" {
			t.Errorf("its contexts: %+v, %v", cs, err)
		}
		if sb := r.until(t, id, hutch.Hibernated); sb.Status != hutch.Hibernated {
			t.Error("looking woke it")
		}
		if n == 0 {
			// Without RACK: see internal/netstack.
			if got := r.run(t, id, count+"; cat /workspace/file; test -p /tmp/pipe && echo pipe; cat /proc/sys/net/ipv4/tcp_recovery"); got != "2\nkept\npipe\n0" {
				t.Errorf("awake: %q", got)
			}
		}
	}
	text, times := r.log(t, hutch.LogsRequest{SandboxID: id, ProcessID: process, Times: true})
	if text != "said 1\nsaid 2\n" || len(began) != 1 || len(times) != 2 || !times[0].Equal(began[0]) || !times[1].After(times[0]) {
		t.Errorf("its log: %q at %v; before it slept, it began at %v", text, times, began)
	} else if text, _ := r.log(t, hutch.LogsRequest{SandboxID: id, ProcessID: process, Since: times[1]}); text != "said 2\n" {
		t.Errorf("its log since it woke: %q", text)
	}
	res, err := r.RunCode(t.Context(), id, hutch.RunRequest{Language: "python", Code: "x + 1"}, nil)
	if err != nil || len(res.Results) != 1 || string(res.Results[0].Data["text/plain"]) != `"42"` {
		t.Errorf("its context: %+v, %v", res, err)
	}
	r.stayAwake(t, id)
	if left := r.left(t); len(left) != 0 {
		t.Errorf("awake, it has left %q", left)
	}
}

// log reads the output of a process, and the times of its pieces.
func (r room) log(t *testing.T, req hutch.LogsRequest) (text string, times []time.Time) {
	t.Helper()
	_, err := r.Logs(t.Context(), req, func(o hutch.Output) error {
		text += string(o.Data)
		times = append(times, o.Time)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return text, times
}

// stayAwake wakes a sandbox, and keeps it awake.
func (r room) stayAwake(t *testing.T, id string) {
	t.Helper()
	if _, err := r.Update(t.Context(), id, hutch.UpdateRequest{KeepAlive: new(true)}); err != nil {
		t.Fatal(err)
	}
	r.run(t, id, "true")
}

// left lists the saved state of sleeping sandboxes.
func (r room) left(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(r.dir, "memory", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// A caller that arrives while a sandbox goes to sleep, or wakes, gets an answer.
func TestUsesAtAllTimes(t *testing.T) {
	r := newRoom(t)
	id, _ := r.sleeper(t, hutch.CreateRequest{})
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for m := range 8 {
				time.Sleep(time.Duration(430+20*n+35*m) * time.Millisecond)
				if got := r.run(t, id, "echo here"); got != "here" {
					t.Errorf("%q", got)
				}
			}
		})
	}
	wg.Wait()
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
}

func TestDestroyedAsleepAndFallingAsleep(t *testing.T) {
	r := newRoom(t)
	for _, wait := range []func(id string){
		func(id string) { r.until(t, id, hutch.Hibernated) },
		func(string) { time.Sleep(520 * time.Millisecond) },
	} {
		id, _ := r.sleeper(t, hutch.CreateRequest{})
		wait(id)
		if _, err := r.Destroy(t.Context(), id, true); err != nil {
			t.Error(err)
		}
		r.until(t, id, hutch.Destroyed)
	}
	if left := r.left(t); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// Background work keeps a sandbox awake until the work ends.
func TestWorkIsNotSleep(t *testing.T) {
	r := newRoom(t)
	sb, err := r.Create(t.Context(), hutch.CreateRequest{SleepAfter: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	work := hutch.ProcessRequest{Command: "timeout 4 python3 -c 'while True: pass'; echo done; exec sleep 1000"}
	p, err := r.StartProcess(t.Context(), sb.ID, work)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.until(t, sb.ID, hutch.Hibernated)
	if time.Since(began) < 4*time.Second {
		t.Errorf("it slept after %v", time.Since(began))
	}
	said, err := r.Process(t.Context(), sb.ID, p.ID)
	if err != nil || !said.Status.Live() {
		t.Errorf("%+v, %v", said, err)
	}
}

// On a full disk a sandbox does not sleep, and loses nothing.
func TestFullDisk(t *testing.T) {
	r := newRoom(t)
	memory := filepath.Join(r.dir, "memory")
	disk.Shrink(t, memory, "3m")
	id, _ := r.sleeper(t, hutch.CreateRequest{})
	tried := false
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && !tried; time.Sleep(time.Millisecond) {
		tried = len(r.left(t)) > 0
	}
	if !tried {
		t.Fatal("it never tried to sleep")
	}
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
	if sb := r.until(t, id, hutch.Running); sb.Health != hutch.Healthy {
		t.Errorf("%+v", sb)
	}
	if err := unix.Unmount(memory, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	r.until(t, id, hutch.Hibernated)
	if got := r.run(t, id, count); got != "3" {
		t.Errorf("the counter says %q", got)
	}
}

// Clients that ask for the record of a sandbox all the time do not keep it awake.
func TestLooksKeepNothingAwake(t *testing.T) {
	r := newRoom(t)
	id, _ := r.sleeper(t, hutch.CreateRequest{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var looking sync.WaitGroup
	defer looking.Wait()
	for range 16 {
		looking.Go(func() {
			for ctx.Err() == nil {
				if sb, err := r.Sandbox(ctx, id); err == nil && sb.Status == hutch.Running && sb.Health == hutch.Healthy && len(sb.Processes) != 1 {
					t.Errorf("a look finds %d processes", len(sb.Processes))
					return
				}
			}
		})
	}
	r.until(t, id, hutch.Hibernated)
	stop()
}

// On a full disk no snapshot is made, an error reports that, and nothing is lost.
func TestSnapshotOnAFullDisk(t *testing.T) {
	r := newRoom(t)
	disk.Shrink(t, filepath.Join(r.dir, "snapshots"), "2m")
	id := r.counted(t)
	for range 2 {
		if _, err := r.Snapshot(t.Context(), id, hutch.SnapshotRequest{}); !errors.Is(err, hutch.Exhausted) {
			t.Errorf("snapshot: %v", err)
		}
		if _, err := r.Fork(t.Context(), id, hutch.ForkRequest{}); !errors.Is(err, hutch.Exhausted) {
			t.Errorf("fork: %v", err)
		}
	}
	if got := r.run(t, id, count); got != "2" {
		t.Errorf("the counter says %q", got)
	}
	if kept := r.kept(t); len(kept) != 0 {
		t.Errorf("left: %q", kept)
	}
}

func TestRootless(t *testing.T) {
	hutchtest.Rootless(t, hutchtest.Pattern("TestEverythingSleeps|TestForksGoTheirOwnWays",
		"TestEverythingSleeps|TestUsesAtAllTimes|TestMemoryThatFitsNoMore|TestKilledAtEveryStep|TestForksGoTheirOwnWays|TestSnapshotsOverAnUpgrade"))
}

func TestLifetimeEndsInSleep(t *testing.T) {
	r := newRoom(t)
	id, _ := r.sleeper(t, hutch.CreateRequest{Timeout: 8})
	r.until(t, id, hutch.Hibernated)
	r.until(t, id, hutch.Destroyed)
	if left := r.left(t); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// When the memory cannot be restored, the files still are.
func TestMemoryThatFitsNoMore(t *testing.T) {
	for _, file := range []string{"state", "pages", "pages.meta", "config.json"} {
		t.Run(file, func(t *testing.T) {
			r := newRoom(t)
			id, _ := r.sleeper(t, hutch.CreateRequest{ID: "broken"})
			r.run(t, id, "echo kept > /workspace/file")
			r.until(t, id, hutch.Hibernated)
			path := filepath.Join(r.dir, "memory", "broken", file)
			if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := r.run(t, id, "cat /workspace/file; stat -c %U /workspace/file"); got != "kept\nuser" {
				t.Errorf("its file: %q", got)
			}
			sb, err := r.Sandbox(t.Context(), id)
			if err != nil || !strings.Contains(sb.Reason, "memory") || len(sb.Processes) != 0 {
				t.Errorf("%+v, %v", sb, err)
			}
		})
	}
}

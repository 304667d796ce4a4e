package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
	"hutch/internal/image"
	"hutch/internal/store"
)

// bench is an engine on a fake driver, with its driver, store and options.
type bench struct {
	*engine.Engine
	driver *fake.Driver
	store  *store.Store
	opt    engine.Options
}

// start starts an engine; change can change its options before the start.
func start(t *testing.T, change func(*engine.Options)) *bench {
	t.Helper()
	t.Parallel()
	st, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	b := &bench{driver: fake.New(t.TempDir()), store: st}
	sealer, err := store.NewSealer(make([]byte, store.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	b.opt = engine.Options{Dir: t.TempDir(), Drivers: []driver.Driver{b.driver}, Image: noImage, Store: st, Sealer: sealer}
	if change != nil {
		change(&b.opt)
	}
	b.boot(t)
	t.Cleanup(func() {
		b.driver.Break(fake.Faults{})
		b.end(t)
		if n, err := b.driver.Sweep(context.Background(), func(string) bool { return false }); err != nil {
			t.Errorf("sweep: %d, %v", n, err)
		}
	})
	return b
}

func noImage(context.Context, string) (image.Root, error) { return image.Root{}, nil }

// boot starts an engine on the store and folder of the previous engine.
func (b *bench) boot(t *testing.T) {
	t.Helper()
	b.Engine = engine.New(b.opt)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) end(t *testing.T) {
	t.Helper()
	if err := b.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func (b *bench) create(t *testing.T, req hutch.CreateRequest) hutch.Sandbox {
	t.Helper()
	sb, err := b.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func (b *bench) run(t *testing.T, id, command string) string {
	t.Helper()
	res, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: command}, nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(res.Stdout) + string(res.Stderr)
}

// until polls the sandbox until it has the status.
func (b *bench) until(t *testing.T, id string, status hutch.Status) hutch.Sandbox {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		sb, err := b.Sandbox(t.Context(), id)
		if errors.Is(err, hutch.NotFound) {
			sb.Status = hutch.Destroyed
		}
		if sb.Status == status {
			return sb
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %s, not %s (%v)", id, sb.Status, status, err)
		}
	}
}

func TestOneIDIsOneSandbox(t *testing.T) {
	b := start(t, nil)
	var made atomic.Int32
	b.driver.Break(fake.Faults{Create: func(string) error { made.Add(1); return nil }})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "same"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("made %d instances for one id", n)
	}
}

// waits is a context that calls begun when a caller starts to wait for the end of the context.
type waits struct {
	context.Context
	begun func()
}

func (w waits) Done() <-chan struct{} {
	w.begun()
	return w.Context.Done()
}

// TestCancelledCreate: when a caller disconnects, other callers that create the same sandbox are not affected.
func TestCancelledCreate(t *testing.T) {
	begun := make(chan struct{})
	var images atomic.Int32
	b := start(t, func(o *engine.Options) {
		o.Image = func(ctx context.Context, _ string) (image.Root, error) {
			if images.Add(1) > 1 {
				return image.Root{}, nil
			}
			close(begun)
			<-ctx.Done()
			return image.Root{}, fmt.Errorf("make the image: %w", ctx.Err())
		}
	})
	first, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := b.Create(first, hutch.CreateRequest{ID: "same"}); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that went away got %v", err)
		}
	})
	<-begun
	both.Go(func() {
		if _, err := b.Create(waits{t.Context(), cancel}, hutch.CreateRequest{ID: "same"}); err != nil {
			t.Errorf("the caller that stayed got %v", err)
		}
	})
	both.Wait()
	b.run(t, "same", "true")
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	b := start(t, nil)
	b.driver.Break(fake.Faults{Create: func(string) error { return hutch.Errorf(hutch.Unavailable, "no luck") }})
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "a"}); !errors.Is(err, hutch.Unavailable) {
		t.Fatalf("error %v", err)
	}
	if list, _ := b.Sandboxes(t.Context(), hutch.Filter{}); len(list) != 0 {
		t.Errorf("left %+v", list)
	}
	b.driver.Break(fake.Faults{})
	b.create(t, hutch.CreateRequest{ID: "a"})
}

func TestStoreFailureUndoesCreate(t *testing.T) {
	b := start(t, nil)
	b.store.Close()
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "a"}); err == nil {
		t.Fatal("created without a record")
	}
	if n, _ := b.driver.Sweep(t.Context(), func(string) bool { return false }); n != 0 {
		t.Errorf("%d instances left", n)
	}
}

func TestIdleStopKeepsFiles(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.run(t, "a", `printf 'b\0y\377' > kept; mkdir -p deep/er; ln -s kept deep/link; chmod 751 deep; sleep 0.2`)
	sb := b.until(t, "a", hutch.Stopped)
	if sb.Health != hutch.Asleep || sb.Uptime != 0 || len(sb.Processes) != 0 {
		t.Errorf("asleep: %+v", sb)
	}
	if got := b.run(t, "a", `od -An -c kept; readlink deep/link; stat -c %a deep`); !strings.Contains(got, `b  \0   y 377`) || !strings.Contains(got, "kept\n751\n") {
		t.Errorf("after waking: %q", got)
	}
}

// Data that is written while the files are being saved is not lost with the instance.
func TestUsedWhileFilesAreKept(t *testing.T) {
	b := start(t, nil)
	packed, goOn := filepath.Join(t.TempDir(), "packed"), filepath.Join(t.TempDir(), "go-on")
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.run(t, "a", `mv .tools/tar .tools/real; printf '#!/bin/sh\n.tools/real "$@" || exit\ntouch `+packed+`\nwhile [ ! -e `+goOn+` ]; do sleep 0.01; done' > .tools/tar; chmod +x .tools/tar`)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(packed); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal("its files are not kept")
		}
	}
	b.run(t, "a", "echo late > late")
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.until(t, "a", hutch.Stopped)
	if got := b.run(t, "a", "cat late"); got != "late\n" {
		t.Errorf("after waking: %q", got)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// A sandbox stays awake when its sleep cannot be recorded.
func TestStopThatCannotBeNoted(t *testing.T) {
	tried := make(chan bool, 1)
	b := start(t, func(o *engine.Options) {
		o.Log = slog.New(slog.NewTextHandler(writer(func(line []byte) {
			if bytes.Contains(line, []byte("idle or expired")) {
				select {
				case tried <- true:
				default:
				}
			}
		}), nil))
	})
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.run(t, "a", "echo here > file")
	b.store.Close()
	<-tried
	if sb, err := b.Sandbox(t.Context(), "a"); err != nil || sb.Status != hutch.Running {
		t.Errorf("it is %s, %v", sb.Status, err)
	}
	if got := b.run(t, "a", "cat file"); got != "here\n" {
		t.Errorf("its file holds %q", got)
	}
}

// Sandboxes that wake at the same time compete for the same free instance.
func TestWakingTakesRoom(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.MaxSandboxes = 1 })
	for _, id := range []string{"a", "b"} {
		b.create(t, hutch.CreateRequest{ID: id, OnIdle: hutch.IdleStop, SleepAfter: 0.05})
		b.until(t, id, hutch.Stopped)
	}
	waking, goOn := make(chan bool), make(chan bool)
	b.driver.Break(fake.Faults{Create: func(id string) error {
		if id == "a" {
			waking <- true
			<-goOn
		}
		return nil
	}})
	woken := make(chan error)
	go func() {
		_, err := b.Resume(t.Context(), "a")
		woken <- err
	}()
	<-waking
	if _, err := b.Resume(t.Context(), "b"); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("the second of one at once: %v", err)
	}
	close(goOn)
	if err := <-woken; err != nil {
		t.Error(err)
	}
}

// The server can end while a sandbox is being destroyed.
func TestCloseWhileDestroying(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	going, goOn := make(chan bool), make(chan bool)
	b.driver.Break(fake.Faults{Destroy: func(string) error { going <- true; <-goOn; return nil }})
	destroyed := make(chan error)
	go func() {
		_, err := b.Destroy(t.Context(), "a", true)
		destroyed <- err
	}()
	<-going
	b.end(t)
	close(goOn)
	if err := <-destroyed; err != nil {
		t.Error(err)
	}
}

func TestUseKeepsAwake(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleDestroy, SleepAfter: 0.1})
	if got := b.run(t, "a", "sleep 0.5; echo done"); got != "done\n" {
		t.Errorf("a use longer than the idle time gave %q", got)
	}
	b.until(t, "a", hutch.Destroyed)
}

func TestKeepAliveNeverIdles(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "kept", KeepAlive: true, OnIdle: hutch.IdleDestroy, SleepAfter: 0.01})
	b.create(t, hutch.CreateRequest{ID: "idle", OnIdle: hutch.IdleDestroy, SleepAfter: 0.1})
	b.until(t, "idle", hutch.Destroyed)
	b.until(t, "kept", hutch.Running)
}

func TestLifetimeEnds(t *testing.T) {
	b := start(t, nil)
	sb := b.create(t, hutch.CreateRequest{ID: "a", KeepAlive: true, Timeout: 0.2})
	if sb.ExpiresAt == nil {
		t.Error("expiresAt is not shown")
	}
	b.until(t, "a", hutch.Destroyed)
}

// The engine does not wait for the saving of files that no caller will see again.
func TestLifetimeEndsWhileFilesAreKept(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05, Timeout: 0.5})
	b.run(t, "a", "rm .tools/tar; printf '#!/bin/sh\nexec sleep 300' > .tools/tar; chmod +x .tools/tar")
	b.until(t, "a", hutch.Destroyed)
}

// A sandbox that is to keep its memory is not stopped while it has background processes, because nothing must be lost.
func TestHibernateSparesBackgroundProcesses(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "busy", SleepAfter: 0.05})
	b.create(t, hutch.CreateRequest{ID: "free", SleepAfter: 0.05})
	p, err := b.StartProcess(t.Context(), "busy", hutch.ProcessRequest{Command: "sleep 300", Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	b.until(t, "free", hutch.Stopped)
	if sb := b.until(t, "busy", hutch.Running); len(sb.Processes) != 1 || sb.Processes[0].PID != p.PID {
		t.Errorf("%+v", sb.Processes)
	}
	if err := b.Signal(t.Context(), "busy", p.ID, 9); err != nil {
		t.Fatal(err)
	}
	b.until(t, "busy", hutch.Stopped)
}

func TestExplicitStopEndsBackgroundProcesses(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.2})
	if _, err := b.StartProcess(t.Context(), "a", hutch.ProcessRequest{Command: "trap 'echo bye > bye; exit' TERM; echo up; while :; do sleep 0.01; done"}); err != nil {
		t.Fatal(err)
	}
	b.until(t, "a", hutch.Stopped)
	if got := b.run(t, "a", "cat bye"); got != "bye\n" {
		t.Errorf("the process was not asked to end: %q", got)
	}
}

func TestMaxSandboxes(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.MaxSandboxes = 2 })
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.create(t, hutch.CreateRequest{ID: "b"})
	if b.until(t, "a", hutch.Stopped); t.Failed() {
		return
	}
	b.create(t, hutch.CreateRequest{ID: "c"}) // a stopped sandbox does not count towards MaxSandboxes
	_, err := b.Create(t.Context(), hutch.CreateRequest{ID: "d"})
	if !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "2 sandboxes") {
		t.Fatalf("the third: %v", err)
	}
	if _, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("waking one too many: %v", err)
	}
	if _, err := b.Destroy(t.Context(), "b", false); err != nil {
		t.Fatal(err)
	}
	b.run(t, "a", "true")
}

func TestRestartFindsSandboxes(t *testing.T) {
	b := start(t, nil)
	made := b.create(t, hutch.CreateRequest{ID: "running", Labels: map[string]string{"k": "v"}, Env: map[string]string{"MINE": "still"}})
	p, err := b.StartProcess(t.Context(), "running", hutch.ProcessRequest{Command: "echo one; sleep 300", Name: "bg"})
	if err != nil {
		t.Fatal(err)
	}
	b.create(t, hutch.CreateRequest{ID: "asleep", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.run(t, "asleep", "echo kept > kept")
	b.until(t, "asleep", hutch.Stopped)
	b.create(t, hutch.CreateRequest{ID: "dies"})
	b.end(t)
	b.driver.Kill("dies")

	b.boot(t)
	sb := b.until(t, "running", hutch.Running)
	if !sb.CreatedAt.Equal(made.CreatedAt) || sb.Labels["k"] != "v" || len(sb.Processes) != 1 || sb.Processes[0].PID != p.PID {
		t.Errorf("found %+v, made %+v", sb, made)
	}
	if got := b.run(t, "running", "echo $MINE"); got != "still\n" {
		t.Errorf("environment after a restart: %q", got)
	}
	if got := b.run(t, "asleep", "cat kept"); got != "kept\n" {
		t.Errorf("files after a restart: %q", got)
	}
	if sb := b.until(t, "dies", hutch.Failed); sb.Reason == "" {
		t.Error("no reason is given")
	}
}

func TestRestartKeepsContexts(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	if _, err := b.RunCode(t.Context(), "a", hutch.RunRequest{ContextID: "c", Code: "x = 42"}, nil); err != nil {
		t.Fatal(err)
	}
	b.end(t)
	b.boot(t)
	list, err := b.Contexts(t.Context(), "a")
	if err != nil || len(list) != 1 || list[0].ID != "c" || list[0].Executions != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	res, err := b.RunCode(t.Context(), "a", hutch.RunRequest{ContextID: "c", Code: "x"}, nil)
	if err != nil || res.Fresh || len(res.Results) != 1 || res.Results[0].Text() != "42" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestDeathIsAnErrorWithAReason(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	running := make(chan struct{})
	go func() {
		<-running
		b.driver.Kill("a")
	}()
	var once sync.Once
	_, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "echo up; sleep 300"}, func(hutch.Output) error {
		once.Do(func() { close(running) })
		return nil
	})
	// A client must not repeat the call by itself: it would find an empty sandbox. On a busy host
	// the death may not be known yet; then the next use reports the loss.
	late := hutch.KindOf(err) == hutch.Unavailable
	if !late && (!errors.Is(err, hutch.Conflict) || !strings.Contains(err.Error(), "empty")) {
		t.Errorf("the command under way: %v", err)
	}
	sb := b.until(t, "a", hutch.Failed)
	if late {
		if _, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil); !errors.Is(err, hutch.Conflict) {
			t.Errorf("the first use after the death: %v", err)
		}
	}
	if sb.Reason == "" || sb.Health != hutch.Unhealthy {
		t.Errorf("%+v", sb)
	}
	// It is not a dead end: a caller that knows of the loss can continue with an empty sandbox.
	_, err = b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil)
	if again := b.until(t, "a", hutch.Running); err != nil || !strings.Contains(again.Reason, sb.Reason) {
		t.Errorf("the next use: %v, %+v", err, again)
	}
	if _, err := b.Destroy(t.Context(), "a", false); err != nil {
		t.Error(err)
	}
	b.create(t, hutch.CreateRequest{ID: "a"})
}

func TestALossIsToldOnce(t *testing.T) {
	var asked, done atomic.Int32
	b := start(t, func(o *engine.Options) {
		o.Waking = func(context.Context, string, string) (func(), error) {
			asked.Add(1)
			return func() { done.Add(1) }, nil
		}
	})
	b.create(t, hutch.CreateRequest{ID: "a"})
	b.driver.Kill("a")
	sb := b.until(t, "a", hutch.Failed)
	_, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil)
	if !errors.Is(err, hutch.Conflict) || !strings.Contains(err.Error(), sb.Reason) || asked.Load() != 0 {
		t.Errorf("the first use: %v; it asks for room %d times", err, asked.Load())
	}
	if r, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil); err != nil || !r.Success() {
		t.Errorf("the next use: %v", err)
	}
	if asked.Load() != 1 || done.Load() != 1 {
		t.Errorf("it asks for room %d times, and %d wakes end", asked.Load(), done.Load())
	}
}

func TestDestroyCanBeTriedAgain(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	b.driver.Break(fake.Faults{Destroy: func(string) error { return errors.New("busy") }})
	if _, err := b.Destroy(t.Context(), "a", true); err == nil {
		t.Fatal("destroyed although the driver could not")
	}
	b.driver.Break(fake.Faults{})
	if got := b.run(t, "a", "echo alive"); got != "alive\n" {
		t.Errorf("meanwhile: %q", got)
	}
	if _, err := b.Destroy(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	b.until(t, "a", hutch.Destroyed)
}

func TestDestroyWakesNobody(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.until(t, "a", hutch.Stopped)
	var made atomic.Int32
	b.driver.Break(fake.Faults{Create: func(string) error { made.Add(1); return nil }})
	if _, err := b.Destroy(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(b.opt.Dir, "files", "*"))
	if made.Load() != 0 || len(files) != 0 {
		t.Errorf("made %d instances, left %q", made.Load(), files)
	}
}

// An agent that does not answer makes its sandbox unhealthy, but nothing is lost.
func TestSilentAgent(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.HealthEvery = 50 * time.Millisecond })
	b.create(t, hutch.CreateRequest{ID: "a"})
	var mu sync.Mutex
	var silent []net.Conn
	b.driver.Break(fake.Faults{Converse: func(_ string, c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		silent = append(silent, c)
	}})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range silent {
			c.Close()
		}
	})
	for sb := b.until(t, "a", hutch.Running); sb.Health != hutch.Unhealthy; sb = b.until(t, "a", hutch.Running) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * 50 * time.Millisecond) // time for ten health checks
	if sb := b.until(t, "a", hutch.Running); sb.Health != hutch.Unhealthy {
		t.Errorf("%+v", sb)
	}
	b.driver.Break(fake.Faults{})
	if r, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil); err != nil || !r.Success() {
		t.Errorf("it answers again: %v", err)
	}
}

// A command in a paused sandbox gets its answer soon after its time limit.
func TestPausedSandboxAnswersInTime(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	var mu sync.Mutex
	var silent []net.Conn
	b.driver.Break(fake.Faults{Converse: func(_ string, c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		silent = append(silent, c)
	}})
	began := time.Now()
	_, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true", Timeout: 1}, nil)
	if took := time.Since(began); !errors.Is(err, hutch.Unavailable) || took > 12*time.Second {
		t.Errorf("answered after %v: %v", took, err)
	}
	mu.Lock()
	for _, c := range silent {
		c.Close()
	}
	mu.Unlock()
	b.driver.Break(fake.Faults{})
	if r, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil); err != nil || !r.Success() {
		t.Errorf("it continues: %v", err)
	}
}

func TestEphemeralEngineTakesItsSandboxesAlong(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Ephemeral, o.Store = true, nil })
	b.create(t, hutch.CreateRequest{ID: "a", KeepAlive: true})
	if _, err := b.StartProcess(t.Context(), "a", hutch.ProcessRequest{Command: "sleep 300"}); err != nil {
		t.Fatal(err)
	}
	b.end(t)
	if n, err := b.driver.Sweep(t.Context(), func(string) bool { return false }); n != 0 || err != nil {
		t.Errorf("%d instances left, %v", n, err)
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{}); !errors.Is(err, hutch.Unavailable) {
		t.Errorf("create after close: %v", err)
	}
}

func TestLeftoverFilesAreRemoved(t *testing.T) {
	b := start(t, nil)
	b.end(t)
	for _, name := range []string{"gone.tar", "half.tar.new", "noise"} {
		if err := os.WriteFile(filepath.Join(b.opt.Dir, "files", name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.boot(t)
	if left, _ := filepath.Glob(filepath.Join(b.opt.Dir, "files", "*")); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

// After a power failure, the record can say that a sandbox sleeps although it had woken. Then there is nothing to wake.
func TestSleeperOfWhichNothingIsLeft(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	b.until(t, "a", hutch.Stopped)
	b.end(t)
	files, err := filepath.Glob(filepath.Join(b.opt.Dir, "files", "*"))
	if len(files) != 1 || err != nil {
		t.Fatalf("it left %q, %v", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	b.boot(t)
	if sb := b.until(t, "a", hutch.Failed); !strings.Contains(sb.Reason, "did not survive") {
		t.Errorf("reason %q", sb.Reason)
	}
	if _, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil); !errors.Is(err, hutch.Conflict) {
		t.Errorf("exec: %v", err)
	}
}

func TestEnvironmentOfASandbox(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Env = map[string]string{"ANTHROPIC_API_KEY": "k"} })
	sb := b.create(t, hutch.CreateRequest{ID: "a", Env: map[string]string{"X": "1"}})
	if !sb.Environment.HasAnthropicCredentials {
		t.Error("credentials are not told of")
	}
	if got := b.run(t, "a", "echo $SANDBOX_ID $SANDBOX_TIMEOUT $X"); got != "a 30 1\n" {
		t.Errorf("%q", got)
	}
}

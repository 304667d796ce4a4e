package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/wire"
)

func start(t testing.TB, c *wire.Client, s wire.Start) wire.Process {
	t.Helper()
	if s.ID == "" {
		s.ID = hutch.NewID("p")
	}
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// find returns the record of a process.
func find(t testing.TB, c *wire.Client, id string) wire.Process {
	t.Helper()
	list, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("no process %s in %+v", id, list)
	return wire.Process{}
}

func logs(t testing.TB, c *wire.Client, a wire.Attach) (r result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	if r.Exit, err = c.Attach(ctx, a, r.add); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestJob(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	p := start(t, c, wire.Start{Name: "greeter", Command: "echo hello; sleep 0.2; echo there >&2; cat; exit 4"})
	if p.PID == 0 || p.Status != hutch.ProcessRunning || p.Name != "greeter" || p.StartMS == 0 || p.Restart != hutch.RestartNever {
		t.Errorf("%+v", p)
	}
	r := logs(t, c, wire.Attach{Process: p.ID, Follow: true})
	if r.stdout != "hello\n" || r.stderr != "there\n" || r.Code != 4 || r.State != hutch.ProcessFailed || r.Cursor != 12 {
		t.Errorf("%+v", r)
	}
	p = find(t, c, p.ID)
	if p.Status != hutch.ProcessFailed || p.ExitCode == nil || *p.ExitCode != 4 || p.PID != 0 || p.EndMS < p.StartMS {
		t.Errorf("%+v", p)
	}
	if r := logs(t, c, wire.Attach{Process: p.ID, Cursor: 6}); r.stdout != "" || r.stderr != "there\n" {
		t.Errorf("from cursor 6: %+v", r)
	}
}

func TestJobOutlivesConnections(t *testing.T) {
	t.Parallel()
	c, dial := serve(t, wire.Boot{})
	p := start(t, c, wire.Start{Command: "echo first; read < <(sleep 0.3); echo second; sleep 1000"})
	c.Close()
	c = wire.NewClient(dial, token)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var r result
	_, err := c.Attach(ctx, wire.Attach{Process: p.ID, Follow: true}, func(o hutch.Output) error {
		if r.add(o); r.stdout == "first\nsecond\n" {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if p := find(t, c, p.ID); p.Status != hutch.ProcessRunning {
		t.Errorf("the end of an attach did this: %+v", p)
	}
	if r := logs(t, c, wire.Attach{Process: p.ID}); r.stdout != "first\nsecond\n" || r.State != hutch.ProcessRunning || r.Cursor != 13 {
		t.Errorf("%+v", r)
	}
	if err := c.Signal(t.Context(), p.ID, 9); err != nil {
		t.Error(err)
	}
	if r := logs(t, c, wire.Attach{Process: p.ID, Follow: true}); r.Code != 137 {
		t.Errorf("%+v", r)
	}
}

func TestLogKeepsTheNewest(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	p := start(t, c, wire.Start{Command: "seq 1 4000000; sleep 0.2; echo end >&2"})
	logs(t, c, wire.Attach{Process: p.ID, Follow: true})
	var got strings.Builder
	var first int64 = -1
	x, err := c.Attach(t.Context(), wire.Attach{Process: p.ID, Cursor: 10}, func(o hutch.Output) error {
		if first < 0 {
			first = o.Cursor - int64(len(o.Data))
		}
		got.Write(o.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	kept := got.Len() // depends on the free space in /tmp
	if kept < wire.LogSize || kept > wire.MaxLog || first+int64(kept) != x.Cursor || !strings.HasSuffix(got.String(), "\n3999999\n4000000\nend\n") {
		t.Errorf("%d bytes from %d, cursor %d, …%q", kept, first, x.Cursor, got.String()[max(0, kept-30):])
	}
}

// One reader reads, one never does, one hangs up: none blocks the process.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	c, dial := serve(t, wire.Boot{})
	p := start(t, c, wire.Start{Command: "read < <(sleep 0.3); seq 1 6000000; sleep 1000"})
	slow := newLine(t, dial)
	slow.hello(token)
	slow.request(wire.Request{Op: "attach", Attach: &wire.Attach{Process: p.ID, Follow: true}})
	gone := newLine(t, dial)
	gone.hello(token)
	gone.request(wire.Request{Op: "attach", Attach: &wire.Attach{Process: p.ID, Follow: true}})
	gone.Close()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			var end int64
			full := errors.New("all read")
			_, err := c.Attach(t.Context(), wire.Attach{Process: p.ID, Follow: true}, func(o hutch.Output) error {
				if end = o.Cursor; end == 46888896 {
					return full
				}
				return nil
			})
			if err != full {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := c.Signal(t.Context(), p.ID, 9); err != nil {
		t.Error(err)
	}
	gaps := 0
	for done := false; !done; {
		kind, _, err := slow.r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == wire.TypeGap {
			gaps++
		}
		done = kind == wire.TypeExit
	}
	if gaps == 0 {
		t.Error("the slow follower lost nothing")
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	for name, tt := range map[string]struct {
		command string
		policy  hutch.RestartPolicy
		again   bool
	}{
		"never":                  {"echo run; exit 1", hutch.RestartNever, false},
		"on failure, good":       {"echo run", hutch.RestartOnFailure, false},
		"on failure, bad":        {"echo run; exit 1", hutch.RestartOnFailure, true},
		"on failure, by signal":  {"echo run; kill -9 $$", hutch.RestartOnFailure, true},
		"always":                 {"echo run", hutch.RestartAlways, true},
		"always, cannot start":   {"echo run; exec /none", hutch.RestartAlways, true},
		"always, holds resource": {"echo run; mkdir $DIR || exit; (sleep 1000; rmdir $DIR) & trap 'exit' TERM", hutch.RestartAlways, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c, wire.Start{Command: tt.command, Restart: tt.policy, Env: []string{"DIR=" + filepath.Join(t.TempDir(), "d")}})
			if !tt.again {
				logs(t, c, wire.Attach{Process: p.ID, Follow: true})
				if p := find(t, c, p.ID); p.Restarts != 0 || p.Status.Live() {
					t.Errorf("%+v", p)
				}
				return
			}
			eventually(t, "it waits for its restart", func() bool { return find(t, c, p.ID).Status == hutch.ProcessStarting })
			eventually(t, "it was restarted", func() bool { return find(t, c, p.ID).Restarts == 1 })
			eventually(t, "it waits again", func() bool {
				return logs(t, c, wire.Attach{Process: p.ID}).stdout == "run\nrun\n" && find(t, c, p.ID).Status == hutch.ProcessStarting
			})
			if err := c.Signal(t.Context(), p.ID, 15); err != nil {
				t.Fatal(err)
			}
			r := logs(t, c, wire.Attach{Process: p.ID, Follow: true})
			if r.stdout != "run\nrun\n" || r.State.Live() {
				t.Errorf("%+v", r)
			}
			if p := find(t, c, p.ID); p.Status.Live() || p.EndMS == 0 || p.Restarts != 1 {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestSignalledIsNotRestarted(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	for name, tt := range map[string]struct {
		command string
		signal  int
		code    int
	}{
		"killed":         {"echo on; sleep 1000 & wait", 9, 137},
		"asked to end":   {"trap 'exit 0' TERM; echo on; sleep 1000 & wait", 15, 0},
		"died of SIGHUP": {"echo on; sleep 1000", 1, 129},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c, wire.Start{Command: tt.command, Restart: hutch.RestartAlways})
			eventually(t, "it prints", func() bool { return logs(t, c, wire.Attach{Process: p.ID}).stdout == "on\n" })
			if err := c.Signal(t.Context(), p.ID, tt.signal); err != nil {
				t.Fatal(err)
			}
			if r := logs(t, c, wire.Attach{Process: p.ID, Follow: true}); r.Code != tt.code || r.stdout != "on\n" {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("a signal it handles", func(t *testing.T) {
		p := start(t, c, wire.Start{Command: "trap 'echo reload' HUP; echo on; while :; do read -t 0.05 < <(:) ; [ -e $STOP ] && exit; done", Restart: hutch.RestartAlways, Env: []string{"STOP=" + filepath.Join(t.TempDir(), "stop")}})
		eventually(t, "it prints", func() bool { return logs(t, c, wire.Attach{Process: p.ID}).stdout == "on\n" })
		if err := c.Signal(t.Context(), p.ID, 1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it reloads", func() bool { return strings.HasPrefix(logs(t, c, wire.Attach{Process: p.ID}).stdout, "on\nreload\n") })
		if p := find(t, c, p.ID); p.Status != hutch.ProcessRunning {
			t.Errorf("%+v", p)
		}
	})
}

func TestSignalReachesTheTree(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	p := start(t, c, wire.Start{Command: "(setsid sleep 1000 &) ; sleep 1000 & echo on; wait", Env: []string{mark}})
	eventually(t, "it prints", func() bool { return logs(t, c, wire.Attach{Process: p.ID}).stdout == "on\n" })
	eventually(t, "all run", func() bool { return len(processesWith(mark)) >= 3 })
	if err := c.Signal(t.Context(), p.ID, 15); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
	if err := c.Signal(t.Context(), "p-none", 15); !errors.Is(err, hutch.NotFound) {
		t.Error(err)
	}
	if err := c.Signal(t.Context(), p.ID, 65); !errors.Is(err, hutch.Invalid) {
		t.Error(err)
	}
}

// Processes that an ended process has left behind are found by their environment.
func TestSignalReachesLeftovers(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	p := start(t, c, wire.Start{Command: "(echo left; setsid sleep 1000) & echo on", Env: []string{mark}})
	logs(t, c, wire.Attach{Process: p.ID, Follow: true})
	eventually(t, "its output is kept", func() bool { return strings.Contains(logs(t, c, wire.Attach{Process: p.ID}).stdout, "left\n") })
	if err := c.Signal(t.Context(), p.ID, 9); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	os.WriteFile(plain, nil, 0o644)
	for argv, code := range map[string]int{"no-such-program": 127, plain: 126} {
		p := start(t, c, wire.Start{Argv: []string{argv}})
		r := logs(t, c, wire.Attach{Process: p.ID, Follow: true})
		if r.Code != code || r.State != hutch.ProcessFailed || !strings.HasPrefix(r.stderr, "hutch: ") {
			t.Errorf("%s: %+v", argv, r)
		}
	}
	_, err := c.Start(t.Context(), wire.Start{ID: "p", Command: "true", Dir: "/none"})
	if !errors.Is(err, hutch.Invalid) {
		t.Error(err)
	}
	if list, _ := c.List(t.Context()); len(list) != 2 {
		t.Errorf("%+v", list)
	}
}

// A sandbox reports its processes, however many they are and whatever their commands.
func TestListOfLongCommands(t *testing.T) {
	t.Parallel()
	const many = 200
	c, _ := serve(t, wire.Boot{MaxLive: many})
	for i := range many {
		name := fmt.Sprint(strings.Repeat("<", hutch.MaxID-3), i)
		start(t, c, wire.Start{Name: name, Command: "sleep 1000 # " + strings.Repeat("\x01", 1<<16)})
	}
	list, err := c.List(t.Context())
	if err != nil || len(list) != many {
		t.Fatalf("%d processes of %d: %v", len(list), many, err)
	}
	if !strings.HasPrefix(list[many-1].Command, "sleep 1000 #") {
		t.Errorf("command %.40q", list[many-1].Command)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{MaxLive: 3})
	var ids []string
	for range 3 {
		ids = append(ids, start(t, c, wire.Start{Command: "sleep 1000"}).ID)
	}
	_, err := c.Start(t.Context(), wire.Start{ID: "one-more", Command: "true"})
	if !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "limit of 3 concurrent background processes") {
		t.Error(err)
	}
	if _, err := c.Start(t.Context(), wire.Start{ID: ids[0], Command: "true"}); !errors.Is(err, hutch.Conflict) {
		t.Error(err)
	}
	if s, err := c.Ping(t.Context()); err != nil || s.Live != 3 || s.Processes < 4 {
		t.Errorf("%+v, %v", s, err)
	}
	c.Signal(t.Context(), ids[0], 9)
	eventually(t, "it has ended", func() bool { return !find(t, c, ids[0]).Status.Live() })
	for i := range wire.MaxFinished + 10 {
		id := fmt.Sprintf("p-%d-%s", i, hutch.NewID("x"))
		start(t, c, wire.Start{ID: id, Command: "true"})
		logs(t, c, wire.Attach{Process: id, Follow: true})
	}
	eventually(t, "old ones are forgotten", func() bool {
		list, err := c.List(t.Context())
		return err == nil && len(list) == wire.MaxFinished+2
	})
	if p := find(t, c, ids[1]); p.Status != hutch.ProcessRunning {
		t.Errorf("%+v", p)
	}
}

// Package soak does for a while what many users do for long: every kind of work in
// several sandboxes at once, with clients that come and go, others that hang, and a
// daemon that is killed in between. Each byte of output and each change of state is
// accounted for, and in the end nothing is left.
//
//	go test ./test/soak -soak 15m -v     or make soak
package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
)

var (
	duration = flag.Duration("soak", 20*time.Second, "how long")
	every    = flag.Duration("crash", 5*time.Second, "time between two kills of the daemon")
	native   = flag.Int("native", 2, "sandboxes on native")
	gvisor   = flag.Int("gvisor", 1, "sandboxes on gvisor")
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// soak is the state of one test.
type soak struct {
	*daemon
	client *client.Client
	mark   string
	boxes  map[string]string // runtimes of the sandboxes, by id

	mu     sync.Mutex
	rounds map[string]int
}

func TestSoak(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	s := &soak{daemon: newDaemon(t), mark: hutch.NewID("mark"), boxes: map[string]string{}, rounds: map[string]int{}}
	s.client = s.daemon.client()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.abandon(t) })
	s.createSandboxes(t)
	s.press(t, 2*time.Second, nil) // makes the server create what it creates only once
	before := s.idleCost(t)
	s.press(t, *duration, s.daemon)
	after := s.idleCost(t)
	t.Logf("rounds: %v; the daemon was killed %d times; it held %d files and %d MiB before, %d and %d after", s.rounds, s.kills, before.files, before.memory, after.files, after.memory)
	if after.files > before.files+20 || after.memory > 2*before.memory+64 {
		t.Errorf("the daemon held %+v before, and %+v after", before, after)
	}
	s.leave(t)
	s.client.Close()
	awaitNothing(t, "goroutines of clients", func() []string {
		if n := runtime.NumGoroutine(); n > goroutines+2 {
			return []string{fmt.Sprint(n)}
		}
		return nil
	})
}

// createSandboxes makes the sandboxes.
func (s *soak) createSandboxes(t *testing.T) {
	t.Helper()
	for kind, n := range map[string]int{"native": *native, "gvisor": *gvisor} {
		if n > 0 {
			hutchtest.Driver(t, kind, hutchtest.Dir(t)) // skips the test where the runtime does not work
		}
		for range n {
			sb, err := s.client.Create(t.Context(), hutch.CreateRequest{Runtime: kind, KeepAlive: true, Limits: hutch.Limits{Memory: 1024, CPU: 2}})
			if err != nil {
				t.Fatal(err)
			}
			s.boxes[sb.ID] = kind
		}
	}
}

// press runs every load in every sandbox for a time, while victim is killed again and again.
func (s *soak) press(t *testing.T, d time.Duration, victim *daemon) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for id, kind := range s.boxes {
		for _, l := range loads {
			all.Go(func() {
				w := &worker{Service: s.client, sandbox: id, runtime: kind, mark: s.mark, state: map[string]int{}}
				for time.Now().Before(end) && ctx.Err() == nil {
					if err := l.run(ctx, w); err != nil {
						if ctx.Err() == nil {
							t.Errorf("%s on %s: %v", l.name, kind, describe(err))
						}
						stop()
						return
					}
					s.mu.Lock()
					s.rounds[l.name]++
					s.mu.Unlock()
				}
			})
		}
	}
	for victim != nil && time.Until(end) > *every && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(*every):
			if err := victim.crash(); err != nil {
				t.Error(err)
				stop()
			}
		}
	}
	all.Wait()
	for id := range s.boxes { // contexts count from 1 again
		for _, context := range []string{"soak-bash", "soak-python"} {
			if err := s.client.DeleteContext(t.Context(), id, context); err != nil {
				t.Error(err)
			}
		}
	}
}

// describe returns an error with its cause, which users do not see.
func describe(err error) string {
	if e, ok := errors.AsType[*hutch.Error](err); ok && e.Cause != nil {
		return fmt.Sprintf("%v: %v", err, e.Cause)
	}
	return err.Error()
}

// idleCost returns the daemon's use of resources when no load runs and every sandbox has been found again.
func (s *soak) idleCost(t *testing.T) cost {
	t.Helper()
	s.client.HTTP.Transport.(*http.Transport).CloseIdleConnections()
	for id, kind := range s.boxes {
		if _, err := s.client.CleanProcesses(t.Context(), id); err != nil {
			t.Error(err)
		}
		r, err := s.client.Exec(t.Context(), id, hutch.ExecRequest{Command: "ls -d /proc/[0-9]*; ls -A /tmp"}, nil)
		if n := strings.Count(string(r.Stdout), "\n"); err != nil || n > 6 {
			t.Errorf("left in the %s sandbox: %s (%v)", kind, r.Stdout, err)
		}
	}
	c, err := s.cost()
	if err != nil {
		t.Error(err)
	}
	return c
}

// leave destroys everything, and checks that nothing is left.
func (s *soak) leave(t *testing.T) {
	t.Helper()
	list, err := s.client.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != len(s.boxes) {
		t.Errorf("%d sandboxes of %d, %v", len(list), len(s.boxes), err)
	}
	for _, sb := range list {
		if _, err := s.client.Destroy(t.Context(), sb.ID, true); err != nil {
			t.Error(err)
		}
	}
	awaitNothing(t, "left on the host", func() []string { return s.leftovers(s.mark) })
	s.client.Close()
	dump, err := s.end(syscall.SIGQUIT) // it prints what every goroutine does
	if err != nil {
		t.Error(err)
	}
	if busy := abandonedCalls(dump); len(busy) > 0 {
		t.Errorf("%d goroutines of the daemon still work:\n%s", len(busy), busy[0])
	}
	err = s.start()
	if err == nil {
		_, err = s.end(syscall.SIGTERM)
	}
	if err != nil {
		t.Error(errors.Join(errors.New("start and end again"), err))
	}
}

// abandon ends the leftovers of a failed test.
func (s *soak) abandon(t *testing.T) {
	if s.cmd.ProcessState != nil {
		return
	}
	for id := range s.boxes {
		s.client.Destroy(context.Background(), id, true)
	}
	if _, err := s.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// abandonedCalls returns the goroutines in a dump that serve a call for which no client waits.
func abandonedCalls(dump string) (busy []string) {
	for g := range strings.SplitSeq(dump, "\n\n") {
		if strings.Contains(g, ".KeepPool(") {
			continue // it fills the pool for the next caller
		}
		if strings.Contains(g, "/internal/rest.") || strings.Contains(g, "/internal/wire.") {
			busy = append(busy, g)
		}
	}
	return busy
}

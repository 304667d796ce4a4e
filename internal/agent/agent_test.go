package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"hutch"
	"hutch/internal/agent"
	"hutch/internal/wire"
)

const token = "t0ken"

// TestMain fails if goroutines are left: code that starts a goroutine must wait for its end.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if path, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "%d goroutines are left\n", runtime.NumGoroutine()-before)
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
			break
		}
	}
	os.Exit(code)
}

// processesWith lists the living processes that have kv in their environment.
func processesWith(kv string) (found []string) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range names {
		env, _ := os.ReadFile(p + "/environ") // empty for a zombie
		if bytes.Contains(env, []byte(kv)) {
			cmd, _ := os.ReadFile(p + "/cmdline")
			found = append(found, filepath.Base(p)+" "+string(cmd))
		}
	}
	return found
}

// eventually polls until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in 20 s not: %s", what)
		}
	}
}

// listen makes a Unix socket whose path is short enough for the kernel.
func listen(t testing.TB) (ln *net.UnixListener, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	return ln, path
}

// serve runs an agent in this process, and returns a client and a dial function.
func serve(t testing.TB, boot wire.Boot) (*wire.Client, func(context.Context) (net.Conn, error)) {
	t.Helper()
	ln, path := listen(t)
	boot.Version, boot.Token = wire.Version, token
	boot.UID, boot.GID = os.Getuid(), os.Getgid()
	if boot.Dir == "" {
		boot.Dir = "/"
	}
	mark := "AGENT_TEST=" + hutch.NewID("t")
	boot.Env = append([]string{"PATH=" + os.Getenv("PATH"), mark}, boot.Env...)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- agent.Serve(ctx, ln, boot, agent.Options{}) }()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	c := wire.NewClient(dial, token)
	t.Cleanup(func() {
		c.Close()
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
			if left := processesWith(mark); len(left) > 0 {
				t.Errorf("processes are left: %q", left)
			}
		case <-time.After(time.Minute): // the agent looks through all of the host's processes
			t.Error("the agent does not end")
		}
	})
	return c, dial
}

// result is what a command printed and how it ended.
type result struct {
	wire.Exit
	stdout, stderr string
}

func (r *result) add(o hutch.Output) error {
	if o.Stream == hutch.Stdout {
		r.stdout += string(o.Data)
	} else {
		r.stderr += string(o.Data)
	}
	return nil
}

func run(t testing.TB, c *wire.Client, s wire.Start) result {
	t.Helper()
	r, err := try(t, c, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func try(t testing.TB, c *wire.Client, s wire.Start) (r result, err error) {
	t.Helper()
	if s.ID == "" {
		s.ID = hutch.NewID("x")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.Exit, err = c.Run(ctx, s, nil, r.add)
	return r, err
}

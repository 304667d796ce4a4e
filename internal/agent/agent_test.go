package agent_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hutch"
	"hutch/internal/agent"
	"hutch/internal/wire"
)

const token = "t0ken"

// serve runs an agent in process and returns a client and how to dial it.
func serve(t testing.TB, boot wire.Boot) (*wire.Client, func(context.Context) (net.Conn, error)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	boot.Version, boot.Token = wire.Version, token
	boot.UID, boot.GID = os.Getuid(), os.Getgid()
	if boot.Dir == "" {
		boot.Dir = "/"
	}
	boot.Env = append([]string{"PATH=" + os.Getenv("PATH")}, boot.Env...)
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
		case <-time.After(10 * time.Second):
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

func TestRun(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	r := run(t, c, wire.Start{Command: "echo out; echo err >&2; exit 3"})
	if r.stdout != "out\n" || r.stderr != "err\n" || r.Code != 3 || r.Cursor != 8 || r.State != hutch.ProcessFailed {
		t.Errorf("%+v", r)
	}
}

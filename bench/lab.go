package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor"
	"hutch/internal/driver/native"
	"hutch/internal/engine"
	"hutch/internal/image"
)

// lab has two instances of Hutch: an engine in this process, and a server.
type lab struct {
	plan
	dir      string
	root     image.Root
	programs programs
	engine   *engine.Engine
	server   *server
	runtimes []*figures
	bare     bare
}

// box returns the id of a caller's sandbox. Each caller has one sandbox of each runtime in each instance of Hutch.
func box(runtime string, caller int) string { return fmt.Sprintf("bench-%s-%d", runtime, caller) }

func newLab(ctx context.Context, p plan) (_ *lab, err error) {
	l := &lab{plan: p}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.dir, err = os.MkdirTemp("", "hutch-bench-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(l.dir, 0o711); err != nil { // sandboxes have other user ids
		return nil, err
	}
	if l.programs, err = copyPrograms(p.bin, l.dir); err != nil {
		return nil, err
	}
	if l.engine, err = l.embed(ctx); err != nil {
		return nil, err
	}
	if l.server, err = serve(ctx, l.dir, "data", "--pool", "0"); err != nil {
		return nil, err
	}
	for range l.most() {
		l.server.callers = append(l.server.callers, newMCPClient(l.server.url, token))
	}
	l.programs.keepers = append(l.programs.keepers, l.server.process.Process.Pid)
	for _, svc := range []hutch.Service{l.engine, l.server.rest} {
		if err := l.createSandboxes(ctx, svc); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// createSandboxes makes every caller's sandboxes.
func (l *lab) createSandboxes(ctx context.Context, svc hutch.Service) error {
	for _, f := range l.runtimes {
		for caller := range l.most() {
			if _, err := svc.Create(ctx, hutch.CreateRequest{ID: box(f.runtime, caller), Runtime: f.runtime, KeepAlive: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// most returns the largest number of callers at once.
func (l *lab) most() int { return slices.Max(l.callers[:]) }

func (l *lab) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	if l.server != nil {
		errs = append(errs, l.server.close(ctx))
	}
	if l.engine != nil {
		errs = append(errs, l.engine.Close(ctx))
	}
	if err := errors.Join(append(errs, os.RemoveAll(l.dir))...); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// embed starts an engine with the requested runtimes that work.
func (l *lab) embed(ctx context.Context) (_ *engine.Engine, err error) {
	home, _ := os.UserHomeDir()
	l.root, err = image.Host(ctx, filepath.Join(l.dir, "images"), image.HostOptions{Path: os.Getenv("PATH"), Home: home})
	if err != nil {
		return nil, err
	}
	var drivers []driver.Driver
	for name := range strings.SplitSeq(l.plan.runtimes, ",") {
		d, err := l.driver(l.dir, name)
		if err != nil {
			return nil, err
		}
		if !d.Check(ctx).OK {
			fmt.Fprintf(os.Stderr, "bench: the runtime %s does not work here, see `hutch doctor`\n", name)
			continue
		}
		drivers = append(drivers, d)
		l.runtimes = append(l.runtimes, &figures{runtime: name})
	}
	if len(drivers) == 0 {
		return nil, errors.New("no runtime to measure")
	}
	e := l.newEngine(l.dir, drivers, engine.Pool{}, nil)
	return e, e.Start(ctx)
}

func (l *lab) newEngine(dir string, drivers []driver.Driver, p engine.Pool, env map[string]string) *engine.Engine {
	return engine.New(engine.Options{
		Dir: dir, Drivers: drivers, Pool: p, Env: env, Ephemeral: true, MaxSandboxes: 1000, Log: slog.New(slog.DiscardHandler),
		Image: func(context.Context, string) (image.Root, error) { return l.root, nil },
	})
}

// driver returns a driver of a runtime with its state below dir.
func (l *lab) driver(dir, name string) (driver.Driver, error) {
	opt := driver.Options{Dir: filepath.Join(dir, name), Agent: filepath.Join(l.dir, "hutch-agent")}
	switch name {
	case "native":
		return native.New(opt)
	case "gvisor":
		return gvisor.New(gvisor.Options{Options: opt, Runsc: filepath.Join(l.dir, "hutch-runsc")})
	}
	return nil, fmt.Errorf("there is no runtime %q", name)
}

// server is a `hutch serve` process and its clients.
type server struct {
	process *exec.Cmd
	url     string
	rest    *client.Client
	callers []*mcpClient // over MCP
}

const token = "bench-token-of-no-worth"

// serve starts a server on a free port and reads its URL from its output.
func serve(ctx context.Context, dir, data string, args ...string) (*server, error) {
	args = append([]string{"serve", "--quiet", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, data), "--max-sandboxes", "1000",
		"--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1", "--cold-compilers"}, args...)
	cmd := exec.Command(filepath.Join(dir, "hutch"), args...)
	cmd.Env = append(os.Environ(), "SANDBOX_AUTH_TOKEN="+token)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only this process, which then ends the server
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{process: cmd}
	for lines := bufio.NewScanner(out); s.url == "" && lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "URL" {
			s.url = words[1]
		}
	}
	if s.url == "" {
		return nil, fmt.Errorf("the server did not start: %w", cmd.Wait())
	}
	s.rest = client.New(s.url, token)
	return s, nil
}

func (s *server) close(ctx context.Context) error {
	list, err := s.rest.Sandboxes(ctx, hutch.Filter{})
	errs := []error{err}
	for _, sb := range list {
		_, err := s.rest.Destroy(ctx, sb.ID, true)
		errs = append(errs, err)
	}
	for _, c := range s.callers {
		c.close()
	}
	errs = append(errs, s.process.Process.Signal(syscall.SIGTERM), s.process.Wait())
	return errors.Join(errs...)
}

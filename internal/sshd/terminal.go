package sshd

import (
	"context"
	"errors"
	"io"
	"maps"
	"regexp"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/caller"
)

// screen is the client's terminal, and the process in the sandbox that uses it.
type screen struct {
	kind string
	// resized has the newest size that was not yet sent to the process.
	resized chan hutch.Size

	mu      sync.Mutex
	size    hutch.Size
	process func(context.Context, int) error // signals the process; nil before the process has begun
}

// kinds matches the names of terminals that a client can set as TERM: many programs make a path of it.
var kinds = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)

func (s *session) openScreen(payload []byte) bool {
	var v struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	if s.began || s.screen != nil || ssh.Unmarshal(payload, &v) != nil {
		return false
	}
	s.screen = &screen{size: sizeOf(v.Columns, v.Rows), resized: make(chan hutch.Size, 1)}
	if kinds.MatchString(v.Term) {
		s.screen.kind = v.Term
	}
	return true
}

// sizeOf returns a valid size for a terminal: a client without one sends 0.
func sizeOf(columns, rows uint32) hutch.Size {
	size := hutch.Size{Columns: int(min(columns, hutch.MaxColumns)), Rows: int(min(rows, hutch.MaxRows))}
	if size.Columns == 0 || size.Rows == 0 {
		return hutch.Size{Columns: 80, Rows: 24}
	}
	return size
}

// change notes a new size. It does not wait for the process.
func (s *screen) change(payload []byte) bool {
	var v struct{ Columns, Rows, Width, Height uint32 }
	if ssh.Unmarshal(payload, &v) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = sizeOf(v.Columns, v.Rows)
	select {
	case <-s.resized:
	default:
	}
	s.resized <- s.size
	return true
}

func (s *screen) signal(ctx context.Context, number int) bool {
	s.mu.Lock()
	signal := s.process
	s.mu.Unlock()
	return signal != nil && signal(ctx, number) == nil
}

// terminalRequest returns the request that starts the process. An empty command is a shell.
func (s *session) terminalRequest(command string) hutch.ProcessRequest {
	s.screen.mu.Lock()
	defer s.screen.mu.Unlock()
	req := hutch.ProcessRequest{Command: command, Name: "ssh", User: s.user, Env: maps.Clone(s.env), Terminal: &s.screen.size}
	if s.screen.kind != "" {
		req.Env["TERM"] = s.screen.kind
	}
	if command == "" {
		req.Command = hutch.ImageLoginShell
		req.Env["PS1"] = s.sandbox + `:\w\$ `
	}
	return req
}

// inTerminal runs a command in a terminal of the sandbox, and shows it to the client. When the client leaves, the
// terminal is hung up.
func (s *session) inTerminal(ctx context.Context, command string) (int, error) {
	svc := s.server.opt.Service
	p, err := svc.StartProcess(ctx, s.sandbox, s.terminalRequest(command))
	if err != nil {
		return 0, err
	}
	s.screen.mu.Lock()
	s.screen.process = func(ctx context.Context, number int) error { return svc.Signal(ctx, s.sandbox, p.ID, number) }
	s.screen.mu.Unlock()
	shown, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { s.typeKeys(shown, p.ID) })
	tasks.Go(func() { s.followSize(shown, p.ID) })
	_, err = svc.Logs(ctx, hutch.LogsRequest{SandboxID: s.sandbox, ProcessID: p.ID, Follow: true}, func(o hutch.Output) error {
		_, err := s.ch.Write(o.Data)
		return err
	})
	stop()
	if err != nil {
		s.hangUp(ctx, p.ID)
		tasks.Wait()
		return 0, err
	}
	tasks.Wait()
	return exitCode(svc.Process(ctx, s.sandbox, p.ID))
}

// exitCode returns how a process ended: 128+n for death by signal n.
func exitCode(p hutch.Process, err error) (int, error) {
	switch {
	case err != nil:
		return 0, err
	case p.Signal != 0:
		return 128 + p.Signal, nil
	case p.ExitCode != nil:
		return *p.ExitCode, nil
	}
	return 0, nil
}

// hangUpTime limits the work for a client that has disconnected.
const hangUpTime = 10 * time.Second

// hangUp ends the process of a terminal without viewers, on the client's behalf, even if its quota is used up.
func (s *session) hangUp(ctx context.Context, process string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller.Unmetered(ctx)), hangUpTime)
	defer cancel()
	s.server.opt.Service.Signal(ctx, s.sandbox, process, signals["HUP"])
}

// typeKeys passes the client's input on. The end of the input is Ctrl-D, for a client that has its input from a file.
func (s *session) typeKeys(ctx context.Context, process string) {
	keys, typed := io.Pipe()
	defer keys.Close()
	stop := context.AfterFunc(ctx, func() { keys.CloseWithError(ctx.Err()) })
	defer stop()
	s.tasks.Go(func() {
		_, err := io.Copy(typed, s.ch)
		if err == nil {
			typed.Write([]byte{4})
		}
		typed.CloseWithError(err)
	})
	err := s.server.opt.Service.Input(ctx, s.sandbox, process, keys, false)
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.ErrClosedPipe) {
		io.Copy(io.Discard, keys) // the program does not read: further input is lost, as at any terminal
	}
}

// followSize passes changes of the client's window on.
func (s *session) followSize(ctx context.Context, process string) {
	for {
		select {
		case <-ctx.Done():
			return
		case size := <-s.screen.resized:
			s.server.opt.Service.Resize(ctx, s.sandbox, process, size)
		}
	}
}

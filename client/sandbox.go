package client

import (
	"context"
	"io"
	"strings"

	"hutch"
)

// Sandbox is a handle on one sandbox. It holds no state but the id.
type Sandbox struct {
	// ID names the sandbox on the server.
	ID     string
	client *Client
}

// Open returns a handle on the sandbox that the request names, and creates it if it does not exist; without an id, it
// creates a new one.
func (c *Client) Open(ctx context.Context, req hutch.CreateRequest) (*Sandbox, error) {
	sb, err := c.Create(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.Handle(sb.ID), nil
}

// Handle returns a handle on a sandbox without checking that it exists.
func (c *Client) Handle(id string) *Sandbox { return &Sandbox{ID: id, client: c} }

// Info returns the sandbox's record.
func (s *Sandbox) Info(ctx context.Context) (hutch.Sandbox, error) {
	return s.client.Sandbox(ctx, s.ID)
}

// Update changes how long the sandbox is kept, and its labels.
func (s *Sandbox) Update(ctx context.Context, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	return s.client.Update(ctx, s.ID, req)
}

// Run runs a bash command line and waits for it.
func (s *Sandbox) Run(ctx context.Context, command string) (hutch.ExecResult, error) {
	return s.Exec(ctx, hutch.ExecRequest{Command: command}, nil)
}

// RunCode runs source text in a language, such as "python", and waits for it.
func (s *Sandbox) RunCode(ctx context.Context, language, source string) (hutch.ExecResult, error) {
	return s.Exec(ctx, hutch.ExecRequest{Command: source, Language: language}, nil)
}

// Exec runs a command as [hutch.Service] describes; out gets the output as it is printed. out can be nil; [To] makes
// one from two writers.
func (s *Sandbox) Exec(ctx context.Context, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	return s.client.Exec(ctx, s.ID, req, out)
}

// Start starts a background process.
func (s *Sandbox) Start(ctx context.Context, req hutch.ProcessRequest) (*Process, error) {
	p, err := s.client.StartProcess(ctx, s.ID, req)
	if err != nil {
		return nil, err
	}
	return s.Process(p.ID), nil
}

// Process returns a handle on a background process without checking that it exists.
func (s *Sandbox) Process(id string) *Process { return &Process{ID: id, sandbox: s} }

// Processes lists the background processes, oldest first.
func (s *Sandbox) Processes(ctx context.Context) ([]hutch.Process, error) {
	return s.client.Processes(ctx, s.ID)
}

// CleanProcesses removes the records of ended processes, and returns their number.
func (s *Sandbox) CleanProcesses(ctx context.Context) (int, error) {
	return s.client.CleanProcesses(ctx, s.ID)
}

// Languages lists the languages that the sandbox has, with versions.
func (s *Sandbox) Languages(ctx context.Context) ([]hutch.Language, error) {
	return s.client.Languages(ctx, s.ID)
}

// Destroy ends the sandbox with everything in it, even if programs are running.
func (s *Sandbox) Destroy(ctx context.Context) error {
	_, err := s.client.Destroy(ctx, s.ID, true)
	return err
}

// Process is a handle on one background process.
type Process struct {
	// ID names the process within its sandbox.
	ID      string
	sandbox *Sandbox
}

// Info returns the process's record.
func (p *Process) Info(ctx context.Context) (hutch.Process, error) {
	return p.sandbox.client.Process(ctx, p.sandbox.ID, p.ID)
}

// Signal sends a signal to the process and everything it started.
func (p *Process) Signal(ctx context.Context, signal int) error {
	return p.sandbox.client.Signal(ctx, p.sandbox.ID, p.ID, signal)
}

// Write writes to the process's standard input, or its terminal, and returns when all bytes have been written.
func (p *Process) Write(ctx context.Context, text string) error {
	return p.Input(ctx, strings.NewReader(text), false)
}

// Input writes everything that r returns to the process's input; with end, it then ends the input.
func (p *Process) Input(ctx context.Context, r io.Reader, end bool) error {
	return p.sandbox.client.Input(ctx, p.sandbox.ID, p.ID, r, end)
}

// Resize changes the size of the process's terminal.
func (p *Process) Resize(ctx context.Context, size hutch.Size) error {
	return p.sandbox.client.Resize(ctx, p.sandbox.ID, p.ID, size)
}

// Wait waits for a port, for a line of output or, with an empty request, for
// the end of the process.
func (p *Process) Wait(ctx context.Context, req hutch.WaitRequest) (hutch.WaitResult, error) {
	return p.sandbox.client.Wait(ctx, p.sandbox.ID, p.ID, req)
}

// Logs passes the output since cursor to out, and returns the cursor to continue from; 0 is the oldest kept output.
func (p *Process) Logs(ctx context.Context, cursor int64, out func(hutch.Output) error) (int64, error) {
	return p.logs(ctx, cursor, false, out)
}

// Follow does what Logs does, and continues until the process has ended for good.
func (p *Process) Follow(ctx context.Context, cursor int64, out func(hutch.Output) error) (int64, error) {
	return p.logs(ctx, cursor, true, out)
}

func (p *Process) logs(ctx context.Context, cursor int64, follow bool, out func(hutch.Output) error) (int64, error) {
	return p.sandbox.client.Logs(ctx, hutch.LogsRequest{
		SandboxID: p.sandbox.ID, ProcessID: p.ID, Cursor: cursor, Follow: follow,
	}, out)
}

// To returns an output function that writes to two writers, which can be the same. Output for a nil writer is
// dropped.
func To(stdout, stderr io.Writer) func(hutch.Output) error {
	return func(o hutch.Output) error {
		w := stdout
		if o.Stream == hutch.Stderr {
			w = stderr
		}
		if w == nil {
			return nil
		}
		_, err := w.Write(o.Data)
		return err
	}
}

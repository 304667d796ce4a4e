package envd

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// A command of E2B is a background process of Hutch. Its tag is the process's name, so that it is known after a restart
// of the server too.

func (h *Handler) routeProcess() {
	serverStream(h, "/process.Process/Start", h.start)
	serverStream(h, "/process.Process/Connect", h.connect)
	unary(h, "/process.Process/List", h.list)
	unary(h, "/process.Process/SendInput", h.sendInput)
	unary(h, "/process.Process/CloseStdin", h.closeStdin)
	unary(h, "/process.Process/Update", h.update)
	unary(h, "/process.Process/SendSignal", h.sendSignal)
	serverStream(h, "/process.Process/StreamInput", func(request, any, *stream) error {
		return rpcErrorf(unimplemented, "this server does not have StreamInput: call SendInput for each piece")
	})
}

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

type ptySize struct {
	Size struct {
		Columns int `json:"cols"`
		Rows    int `json:"rows"`
	} `json:"size"`
}

func (p *ptySize) size() *hutch.Size {
	if p == nil {
		return nil
	}
	return &hutch.Size{Columns: p.Size.Columns, Rows: p.Size.Rows}
}

type startRequest struct {
	Process processConfig `json:"process"`
	PTY     *ptySize      `json:"pty"`
	Tag     string        `json:"tag"`
	Stdin   *bool         `json:"stdin"` // absent means true
}

// Messages of a stream of events.
type (
	eventMessage struct {
		Event processEvent `json:"event"`
	}
	processEvent struct {
		Start     *startEvent `json:"start,omitempty"`
		Data      *dataEvent  `json:"data,omitempty"`
		End       *endEvent   `json:"end,omitempty"`
		Keepalive *struct{}   `json:"keepalive,omitempty"`
	}
	startEvent struct {
		PID int `json:"pid"`
	}
	dataEvent struct {
		Stdout []byte `json:"stdout,omitempty"`
		Stderr []byte `json:"stderr,omitempty"`
		PTY    []byte `json:"pty,omitempty"`
	}
	endEvent struct {
		ExitCode int    `json:"exitCode"`
		Exited   bool   `json:"exited"`
		Status   string `json:"status"`
		Error    string `json:"error,omitempty"`
	}
)

// start starts a command and follows it. The command ends at its time limit, and does not end when the client leaves.
func (h *Handler) start(q request, m startRequest, s *stream) error {
	limit, err := timeLimit(q.Request)
	if err != nil {
		return err
	}
	who, err := h.account(q, basicUser(q.Request))
	if err != nil {
		return err
	}
	if m.Process.Cmd == "" {
		return rpcErrorf(invalidArgument, "process.cmd is empty: give the path of a program")
	}
	asked := hutch.ProcessRequest{
		Command: hutch.CommandLine(append([]string{m.Process.Cmd}, m.Process.Args...)...),
		Name:    m.Tag, Dir: who.path(cmp.Or(m.Process.Cwd, who.home)), Env: m.Process.Envs, User: who.user,
		Stdin: m.PTY == nil && (m.Stdin == nil || *m.Stdin), Terminal: m.PTY.size(),
	}
	var p hutch.Process
	err = h.turns.start(q.ctx, place(q.ctx, q.target), limit, func(again bool) (err error) {
		ctx := q.ctx
		if again {
			ctx = unmetered(ctx)
		}
		p, err = q.target.Service.StartProcess(ctx, q.target.Sandbox, asked)
		return err
	})
	if err != nil {
		return err
	}
	c := h.commands.add(&command{place: place(q.ctx, q.target), pid: p.PID, id: p.ID, config: m.Process.short(), terminal: m.PTY != nil})
	if limit > 0 {
		h.killAfter(q, c, limit)
	}
	return h.follow(q, c, 0, limit, s)
}

// killAfter kills a command at its time limit, also when its client has left. It keeps little of the request until then:
// clients can start and leave any number of commands.
func (h *Handler) killAfter(q request, c *command, limit time.Duration) {
	from := caller.From(q.ctx)
	from.Budget = nil
	ctx, svc, sandbox := unmetered(caller.With(h.ctx, from)), q.target.Service, q.target.Sandbox
	var kill func()
	kill = func() {
		sb, err := svc.Sandbox(ctx, sandbox)
		switch {
		case err != nil || ctx.Err() != nil:
		case sb.Status != hutch.Running: // a signal would wake the sandbox
			c.after(asleep, kill)
		default:
			svc.Signal(ctx, sandbox, c.id, int(syscall.SIGKILL))
		}
	}
	c.after(limit, kill)
}

// asleep is the time between checks of a command that has reached its time limit in a paused sandbox.
const asleep = time.Minute

// connect follows a command that is running, or ended a moment ago.
func (h *Handler) connect(q request, m selection, s *stream) error {
	limit, err := timeLimit(q.Request)
	if err != nil {
		return err
	}
	c, err := h.find(q, m.Process)
	if err != nil {
		return err
	}
	// For a cursor after the end, Logs returns the present end of the output.
	end, err := q.target.Service.Logs(unmetered(q.ctx), hutch.LogsRequest{SandboxID: q.target.Sandbox, ProcessID: c.id, Cursor: math.MaxInt64}, nil)
	if err != nil {
		return err
	}
	return h.follow(q, c, end, limit, s)
}

// follow sends the output of a command from a cursor on, and the command's exit.
func (h *Handler) follow(q request, c *command, cursor int64, limit time.Duration, s *stream) error {
	ctx, cancel := context.WithCancelCause(unmetered(q.ctx))
	defer cancel(nil)
	if limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(errTimeUp) })
		defer timer.Stop()
	}
	if err := s.send(eventMessage{processEvent{Start: &startEvent{c.pid}}}); err != nil {
		return err
	}
	defer s.keepAlive(eventMessage{processEvent{Keepalive: &struct{}{}}}, func() { cancel(errGone) })()
	var refused error
	_, err := q.target.Service.Logs(ctx, hutch.LogsRequest{SandboxID: q.target.Sandbox, ProcessID: c.id, Cursor: cursor, Follow: true}, func(o hutch.Output) error {
		refused = s.output(o, c.terminal)
		return refused
	})
	if cause := cmp.Or(refused, context.Cause(ctx)); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	p, err := q.target.Service.Process(ctx, q.target.Sandbox, c.id)
	if err != nil {
		return err
	}
	c.end()
	return s.send(eventMessage{processEvent{End: endOf(p)}})
}

// output sends a piece of output.
func (s *stream) output(o hutch.Output, terminal bool) error {
	if o.Lost > 0 {
		return rpcErrorf(dataLoss, "%d bytes of output were dropped, because they came faster than they were read: write them to a file, and read that", o.Lost)
	}
	data := &dataEvent{}
	switch {
	case terminal:
		data.PTY = o.Data
	case o.Stream == hutch.Stderr:
		data.Stderr = o.Data
	default:
		data.Stdout = o.Data
	}
	return s.send(eventMessage{processEvent{Data: data}})
}

// endOf says how a process ended, in the words of Go's os.ProcessState, which clients show.
func endOf(p hutch.Process) *endEvent {
	exit := 0
	if p.ExitCode != nil {
		exit = *p.ExitCode
	}
	if p.Signal > 0 {
		status := "signal: " + syscall.Signal(p.Signal).String()
		return &endEvent{ExitCode: -1, Status: status, Error: status}
	}
	e := &endEvent{ExitCode: exit, Exited: true, Status: "exit status " + itoa(exit)}
	if exit != 0 {
		e.Error = e.Status
	}
	return e
}

type inputRequest struct {
	Process selector `json:"process"`
	Input   struct {
		Stdin []byte `json:"stdin"`
		PTY   []byte `json:"pty"`
	} `json:"input"`
}

func (h *Handler) sendInput(q request, m inputRequest) (struct{}, error) {
	c, err := h.find(q, m.Process)
	if err != nil {
		return struct{}{}, err
	}
	switch {
	case c.terminal && len(m.Input.Stdin) > 0:
		return struct{}{}, rpcErrorf(failedPrecondition, "the process has a terminal: send pty, and not stdin")
	case !c.terminal && len(m.Input.PTY) > 0:
		return struct{}{}, rpcErrorf(failedPrecondition, "the process has no terminal: send stdin, and not pty")
	}
	data := append(m.Input.Stdin, m.Input.PTY...)
	return struct{}{}, q.target.Service.Input(q.ctx, q.target.Sandbox, c.id, bytes.NewReader(data), false)
}

func (h *Handler) closeStdin(q request, m selection) (struct{}, error) {
	c, err := h.find(q, m.Process)
	if err != nil {
		return struct{}{}, err
	}
	return struct{}{}, q.target.Service.Input(q.ctx, q.target.Sandbox, c.id, bytes.NewReader(nil), true)
}

type updateRequest struct {
	Process selector `json:"process"`
	PTY     *ptySize `json:"pty"`
}

func (h *Handler) update(q request, m updateRequest) (struct{}, error) {
	c, err := h.find(q, m.Process)
	if err != nil || m.PTY == nil {
		return struct{}{}, err
	}
	return struct{}{}, q.target.Service.Resize(q.ctx, q.target.Sandbox, c.id, *m.PTY.size())
}

type signalRequest struct {
	Process selector     `json:"process"`
	Signal  signalNumber `json:"signal"`
}

// endTime is how long SendSignal waits for a killed process to disappear: clients look for its id next.
const endTime = 2

func (h *Handler) sendSignal(q request, m signalRequest) (struct{}, error) {
	c, err := h.find(q, m.Process)
	if err != nil {
		return struct{}{}, err
	}
	svc, ctx := q.target.Service, unmetered(q.ctx)
	p, err := svc.Process(ctx, q.target.Sandbox, c.id)
	if err == nil && !p.Status.Live() {
		return struct{}{}, errNoProcess(m.Process)
	}
	if err == nil {
		err = svc.Signal(q.ctx, q.target.Sandbox, c.id, int(m.Signal))
	}
	if err == nil && m.Signal == signalNumber(syscall.SIGKILL) {
		_, err = svc.Wait(ctx, q.target.Sandbox, c.id, hutch.WaitRequest{Timeout: endTime})
	}
	return struct{}{}, err
}

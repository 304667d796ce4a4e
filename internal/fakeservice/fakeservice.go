// Package fakeservice is a [hutch.Service] that runs nothing: sandboxes are
// records in memory, and commands call functions of the test. So surfaces can
// be tested and measured without an engine.
package fakeservice

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"hutch"
)

// Service keeps records and calls functions of the test. The zero value works:
// Exec then prints the command and exits with 0.
type Service struct {
	// OnExec runs a command in a sandbox that exists.
	OnExec func(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error)
	// OnFiles has the files of every sandbox; without it sandboxes have no files.
	OnFiles hutch.Files
	// OnRun runs code in a context.
	OnRun func(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error)
	// OnLogs passes the output of a process to out.
	OnLogs func(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error)

	// OnDial connects to any port; without it nothing listens on ports.
	OnDial func(ctx context.Context, sandbox string, port int) (net.Conn, error)
	// OnWait waits for a process; without it, a wait ends at once.
	OnWait func(ctx context.Context, p hutch.Process, req hutch.WaitRequest) (hutch.WaitResult, error)

	mu        sync.Mutex
	sandboxes map[string]hutch.Sandbox
	processes map[string][]hutch.Process
	created   []hutch.CreateRequest
	signals   []int
	contexts  []hutch.CodeContext
	inputs    map[string][]byte
	ports     []hutch.Port
	snapshots []hutch.Snapshot
}

var _ hutch.Service = (*Service)(nil)

// Created returns the requests that Create has received so far.
func (s *Service) Created() []hutch.CreateRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.created)
}

// Signals returns the signals that Signal has received so far.
func (s *Service) Signals() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.signals)
}

func (s *Service) Create(_ context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if err := req.Check(); err != nil {
		return hutch.Sandbox{}, err
	}
	network, err := req.Network.Canonical()
	if err == nil {
		_, err = network.Completed(hutch.Network{})
	}
	if err != nil {
		return hutch.Sandbox{}, err
	}
	if req.ID == "" {
		req.ID = hutch.NewID("sb")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = append(s.created, req)
	if sb, ok := s.sandboxes[req.ID]; ok {
		return sb, nil
	}
	if err := cmp.Or(hutch.CheckNewID(req.ID), hutch.MatchNodeSelector(req.NodeSelector, nil)); err != nil {
		return hutch.Sandbox{}, err
	}
	req.SleepAfter, req.OnIdle = cmp.Or(req.SleepAfter, 600), cmp.Or(req.OnIdle, hutch.IdleHibernate)
	now := time.Now().UTC()
	req.Network = req.Network.Shown()
	sb := hutch.Sandbox{
		ID: req.ID, Status: hutch.Running, Image: cmp.Or(req.Image, "host"), Runtime: "fake", InstanceType: req.InstanceType, CreatedAt: now, LastUsedAt: now,
		KeepAlive: req.KeepAlive, SleepAfter: req.SleepAfter, OnIdle: req.OnIdle, Health: hutch.Healthy,
		Limits: req.Limits, Network: req.Network, Labels: req.Labels, NodeSelector: req.NodeSelector, Tolerations: req.Tolerations, Volumes: req.Volumes, Processes: []hutch.Process{},
	}
	if req.Timeout > 0 {
		end := now.Add(req.Timeout.Duration())
		sb.ExpiresAt = &end
	}
	if s.sandboxes == nil {
		s.sandboxes = map[string]hutch.Sandbox{}
		s.processes = map[string][]hutch.Process{}
	}
	s.sandboxes[sb.ID] = sb
	return sb, nil
}

func (s *Service) Sandbox(_ context.Context, id string) (hutch.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findLocked(id)
}

func (s *Service) InstanceTypes(context.Context) ([]hutch.InstanceType, error) {
	return slices.Clone(hutch.InstanceTypes), nil
}

func (s *Service) Update(ctx context.Context, id string, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	s.mu.Lock()
	if sb, ok := s.sandboxes[id]; ok {
		if req.KeepAlive != nil {
			sb.KeepAlive = *req.KeepAlive
		}
		if req.Timeout != nil && *req.Timeout == 0 {
			sb.ExpiresAt = nil
		}
		s.sandboxes[id] = sb
	}
	s.mu.Unlock()
	return s.Sandbox(ctx, id)
}

func (s *Service) findLocked(id string) (hutch.Sandbox, error) {
	if err := hutch.CheckID(id); err != nil {
		return hutch.Sandbox{}, err
	}
	sb, ok := s.sandboxes[id]
	if !ok {
		return hutch.Sandbox{}, hutch.Errorf(hutch.NotFound, "no sandbox %q", id).Naming(hutch.AboutSandbox, id)
	}
	sb.Processes = append([]hutch.Process{}, s.processes[id]...)
	return sb, nil
}

func (s *Service) Sandboxes(_ context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []hutch.Sandbox{}
	for id := range maps.Keys(s.sandboxes) {
		if sb, _ := s.findLocked(id); f.Match(sb) {
			list = append(list, sb)
		}
	}
	slices.SortFunc(list, func(a, b hutch.Sandbox) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

func (s *Service) Destroy(_ context.Context, id string, force bool) (hutch.Destruction, error) {
	if err := hutch.CheckID(id); err != nil {
		return hutch.Destruction{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !force && slices.ContainsFunc(s.processes[id], func(p hutch.Process) bool { return p.Status.Live() }) {
		return hutch.Destruction{}, hutch.Errorf(hutch.Conflict, "sandbox %q has running background processes: use force", id)
	}
	delete(s.sandboxes, id)
	delete(s.processes, id)
	return hutch.Destruction{ID: id, Status: hutch.Destroyed, ResourcesReleased: true, DestroyedAt: time.Now().UTC()}, nil
}

func (s *Service) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return hutch.ExecResult{}, err
	}
	if req.Resumable && req.Started != nil {
		req.Started(execID)
	}
	if s.OnExec != nil {
		return s.OnExec(ctx, sandbox, req, out)
	}
	return Print(sandbox, req, out, hutch.Stdout, req.Command+"\n")
}

// execID is the id of every resumable command.
const execID = "x-scripted"

func (s *Service) ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if err := s.CancelExec(ctx, sandbox, exec); err != nil {
		return hutch.ExecResult{}, err
	}
	return Print(sandbox, hutch.ExecRequest{Command: "resumed"}, out, hutch.Stdout, fmt.Sprintln("resumed at", cursor))
}

func (s *Service) CancelExec(ctx context.Context, sandbox, exec string) error {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return err
	}
	if exec != execID {
		return hutch.Errorf(hutch.NotFound, "no resumable command %q", exec)
	}
	return nil
}

// Print acts like a command that prints one text and exits with 0.
func Print(sandbox string, req hutch.ExecRequest, out func(hutch.Output) error, stream hutch.Stream, text string) (hutch.ExecResult, error) {
	res := hutch.ExecResult{SandboxID: sandbox, Command: req.Command, Duration: time.Millisecond, Timestamp: time.Now().UTC()}
	if stream == hutch.Stdout {
		res.Stdout = []byte(text)
	} else {
		res.Stderr = []byte(text)
	}
	if out == nil {
		return res, nil
	}
	return res, out(hutch.Output{Stream: stream, Data: []byte(text), Cursor: int64(len(text))})
}

func (s *Service) StartProcess(_ context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLocked(sandbox); err != nil {
		return hutch.Process{}, err
	}
	req.RestartPolicy = cmp.Or(req.RestartPolicy, hutch.RestartNever)
	p := hutch.Process{
		ID: hutch.NewID("pr"), SandboxID: sandbox, Name: req.Name, Command: req.Command, Status: hutch.ProcessRunning,
		PID: 42, StartTime: time.Now().UTC(), RestartPolicy: req.RestartPolicy, Terminal: req.Terminal,
	}
	s.processes[sandbox] = append(s.processes[sandbox], p)
	return p, nil
}

func (s *Service) Process(_ context.Context, sandbox, process string) (hutch.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLocked(sandbox); err != nil {
		return hutch.Process{}, err
	}
	for _, p := range s.processes[sandbox] {
		if p.ID == process {
			return p, nil
		}
	}
	return hutch.Process{}, hutch.Errorf(hutch.NotFound, "no process %q in sandbox %q", process, sandbox)
}

func (s *Service) Processes(_ context.Context, sandbox string) ([]hutch.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, err := s.findLocked(sandbox)
	return sb.Processes, err
}

func (s *Service) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	if _, err := s.Process(ctx, req.SandboxID, req.ProcessID); err != nil {
		return 0, err
	}
	if s.OnLogs == nil {
		return req.Cursor, nil
	}
	return s.OnLogs(ctx, req, out)
}

func (s *Service) Signal(ctx context.Context, sandbox, process string, signal int) error {
	if err := hutch.CheckSignal(signal); err != nil {
		return err
	}
	if _, err := s.Process(ctx, sandbox, process); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signals = append(s.signals, signal)
	return nil
}

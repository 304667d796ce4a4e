package fakeservice

import (
	"context"
	"io"
	"slices"

	"hutch"
)

// Written returns the input that was written to the process so far.
func (s *Service) Written(process string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.inputs[process])
}

func (s *Service) Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error {
	if _, err := s.Process(ctx, sandbox, process); err != nil {
		return err
	}
	buf := make([]byte, 4<<10)
	for {
		n, err := r.Read(buf)
		s.mu.Lock()
		if s.inputs == nil {
			s.inputs = map[string][]byte{}
		}
		s.inputs[process] = append(s.inputs[process], buf[:n]...)
		s.mu.Unlock()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *Service) Resize(ctx context.Context, sandbox, process string, size hutch.Size) error {
	if err := size.Check(); err != nil {
		return err
	}
	if _, err := s.Process(ctx, sandbox, process); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.processes[sandbox] {
		if p.ID == process {
			s.processes[sandbox][i].Terminal = &size
		}
	}
	return nil
}

func (s *Service) Wait(ctx context.Context, sandbox, process string, req hutch.WaitRequest) (hutch.WaitResult, error) {
	p, err := s.Process(ctx, sandbox, process)
	if err != nil || s.OnWait == nil {
		return hutch.WaitResult{Process: p, Met: err == nil}, err
	}
	return s.OnWait(ctx, p, req)
}

func (s *Service) CleanProcesses(_ context.Context, sandbox string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLocked(sandbox); err != nil {
		return 0, err
	}
	before := len(s.processes[sandbox])
	s.processes[sandbox] = slices.DeleteFunc(s.processes[sandbox], func(p hutch.Process) bool { return !p.Status.Live() })
	return before - len(s.processes[sandbox]), nil
}

func (s *Service) Languages(ctx context.Context, sandbox string) ([]hutch.Language, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return nil, err
	}
	return []hutch.Language{{Name: "bash", Aliases: []string{"sh", "shell"}, Version: "5.2", Contexts: true}}, nil
}

package fakeservice

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"hutch"
)

// CreateContext implements hutch.Service.
func (s *Service) CreateContext(ctx context.Context, sandbox string, req hutch.ContextRequest) (hutch.CodeContext, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return hutch.CodeContext{}, err
	}
	if req.ID == "" {
		req.ID = hutch.NewID("ctx")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.contexts {
		if c.SandboxID == sandbox && c.ID == req.ID {
			return c, nil
		}
	}
	now := time.Now().UTC()
	c := hutch.CodeContext{ID: req.ID, SandboxID: sandbox, Language: req.Language, Dir: req.Dir, CreatedAt: now, LastUsedAt: now}
	s.contexts = append(s.contexts, c)
	return c, nil
}

// Contexts implements hutch.Service.
func (s *Service) Contexts(ctx context.Context, sandbox string) ([]hutch.CodeContext, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.contexts), func(c hutch.CodeContext) bool { return c.SandboxID != sandbox }), nil
}

// DeleteContext implements hutch.Service.
func (s *Service) DeleteContext(ctx context.Context, sandbox, id string) error {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contexts = slices.DeleteFunc(s.contexts, func(c hutch.CodeContext) bool { return c.SandboxID == sandbox && c.ID == id })
	return nil
}

// Interrupt implements hutch.Service.
func (s *Service) Interrupt(ctx context.Context, sandbox, id string) error {
	_, err := s.Sandbox(ctx, sandbox)
	return err
}

// RunCode calls OnRun or, without it, returns the code as its own value.
func (s *Service) RunCode(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	c, err := s.CreateContext(ctx, sandbox, hutch.ContextRequest{ID: req.ContextID, Language: req.Language})
	if err != nil {
		return hutch.RunResult{}, err
	}
	if s.OnRun != nil {
		return s.OnRun(ctx, sandbox, req, out)
	}
	text, err := json.Marshal(req.Code)
	if err != nil {
		return hutch.RunResult{}, err
	}
	value := hutch.CodeResult{Main: true, Data: map[string]json.RawMessage{"text/plain": text}}
	res := hutch.RunResult{ContextID: c.ID, SandboxID: sandbox, Executions: 1, Results: []hutch.CodeResult{value}, Duration: time.Millisecond}
	if out == nil {
		return res, nil
	}
	return res, out(hutch.RunEvent{Result: &value})
}

package scripted

import (
	"context"
	"slices"
	"time"

	"hutch"
)

// Snapshot keeps a record, and nothing else.
func (s *Service) Snapshot(ctx context.Context, sandbox string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	sb, err := s.Sandbox(ctx, sandbox)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	v := hutch.Snapshot{
		ID: hutch.NewID("snap"), Name: req.Name, SandboxID: sandbox, Shared: req.Shared, CreatedAt: time.Now().UTC(),
		Memory: !req.FilesOnly, Image: sb.Image, Runtime: sb.Runtime, Limits: sb.Limits,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots = append(s.snapshots, v)
	return v, nil
}

// CreateTemplate keeps a record, and nothing else.
func (s *Service) CreateTemplate(_ context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	v := hutch.Snapshot{ID: hutch.NewID("snap"), Name: hutch.TemplateName(req.Name), Shared: req.Shared, CreatedAt: time.Now().UTC(), Template: &req.Template}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots = append(s.snapshots, v)
	return v, nil
}

func (s *Service) Snapshots(context.Context) ([]hutch.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.snapshots), nil
}

func (s *Service) DeleteSnapshot(_ context.Context, snapshot string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots = slices.DeleteFunc(s.snapshots, func(v hutch.Snapshot) bool { return v.ID == snapshot || v.Name == snapshot })
	return nil
}

func (s *Service) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return nil, err
	}
	var forks []hutch.Sandbox
	for range max(req.Count, 1) {
		sb, err := s.Create(ctx, hutch.CreateRequest{})
		if err != nil {
			return nil, err
		}
		forks = append(forks, sb)
	}
	return forks, nil
}

func (s *Service) Pause(_ context.Context, sandbox string) (hutch.Sandbox, error) {
	return s.become(sandbox, hutch.Paused)
}

func (s *Service) Hibernate(_ context.Context, sandbox string) (hutch.Sandbox, error) {
	return s.become(sandbox, hutch.Hibernated)
}

func (s *Service) Resume(_ context.Context, sandbox string) (hutch.Sandbox, error) {
	return s.become(sandbox, hutch.Running)
}

func (s *Service) become(sandbox string, status hutch.Status) (hutch.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, err := s.findLocked(sandbox)
	if err == nil {
		sb.Status, sb.Paused = status, status == hutch.Paused
		s.sandboxes[sandbox] = sb
	}
	return sb, err
}

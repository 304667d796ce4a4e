package fakeservice

import (
	"cmp"
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
	if req.Name != "" {
		v.Names = []string{req.Name}
	}
	s.snapshots = append(s.snapshots, v)
	return v, nil
}

// CreateTemplate keeps a record, and nothing else.
func (s *Service) CreateTemplate(_ context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	v := hutch.Snapshot{ID: hutch.NewID("snap"), Name: hutch.TemplateName(req.Name), Shared: req.Shared, CreatedAt: time.Now().UTC(), Limits: req.Limits, Template: &req.Template}
	v.Names = []string{v.Name}
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

// TagSnapshot moves a name, even if the request does not ask for a move.
func (s *Service) TagSnapshot(_ context.Context, snapshot string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.snapshots, func(v hutch.Snapshot) bool { return v.IsCalled(snapshot) })
	if i < 0 {
		return hutch.Snapshot{}, hutch.Errorf(hutch.NotFound, "there is no snapshot %q", snapshot)
	}
	id, name := s.snapshots[i].ID, hutch.TemplateName(req.Name)
	if s.snapshots[i].HasName(name) {
		return s.snapshots[i], nil
	}
	s.untagLocked(name)
	i = slices.IndexFunc(s.snapshots, func(v hutch.Snapshot) bool { return v.ID == id })
	s.snapshots[i] = named(s.snapshots[i], append(slices.Clone(s.snapshots[i].Names), name))
	return s.snapshots[i], nil
}

func (s *Service) DeleteSnapshot(_ context.Context, snapshot string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots = slices.DeleteFunc(s.snapshots, func(v hutch.Snapshot) bool { return v.ID == snapshot })
	s.untagLocked(hutch.TemplateName(snapshot))
	return nil
}

// untagLocked removes a name, and the snapshot with its last name.
func (s *Service) untagLocked(name string) {
	s.snapshots = slices.DeleteFunc(s.snapshots, func(v hutch.Snapshot) bool { return slices.Equal(v.Names, []string{name}) })
	for i, v := range s.snapshots {
		s.snapshots[i] = named(v, slices.DeleteFunc(slices.Clone(v.Names), func(n string) bool { return n == name }))
	}
}

// named returns a snapshot with these names.
func named(v hutch.Snapshot, names []string) hutch.Snapshot {
	v.Name, v.Names = "", names
	if len(names) > 0 {
		v.Name = names[0]
	}
	return v
}

// DiffSnapshot finds a file of each kind of change, with text if the request asks for text.
func (s *Service) DiffSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	if err := req.Check(); err != nil {
		return hutch.SnapshotDiff{}, err
	}
	all, _ := s.Snapshots(ctx)
	find := func(name string) (hutch.Snapshot, error) {
		i := slices.IndexFunc(all, func(v hutch.Snapshot) bool { return v.IsCalled(name) })
		if i < 0 {
			return hutch.Snapshot{}, hutch.Errorf(hutch.NotFound, "there is no snapshot %q", name)
		}
		return all[i], nil
	}
	v, err := find(snapshot)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	diff := hutch.SnapshotDiff{Snapshot: v.ID, Added: 1, Changed: 1, Deleted: 1}
	if req.To != "" {
		with, err := find(req.To)
		if err != nil {
			return hutch.SnapshotDiff{}, err
		}
		diff.To = with.ID
	} else {
		diff.SandboxID = cmp.Or(req.SandboxID, v.SandboxID)
		if _, err := s.Sandbox(ctx, diff.SandboxID); err != nil {
			return hutch.SnapshotDiff{}, err
		}
	}
	file := func(name string, size int64) *hutch.FileInfo {
		return &hutch.FileInfo{Path: "/workspace/" + name, Name: name, Type: hutch.RegularFile, Size: size, Mode: 0o644, Modified: v.CreatedAt}
	}
	diff.Files = []hutch.FileChange{
		{Kind: hutch.AddedFile, After: file("added", 4)},
		{Kind: hutch.ChangedFile, Before: file("changed", 4), After: file("changed", 6)},
		{Kind: hutch.DeletedFile, Before: file("deleted", 1<<20)},
	}
	if req.Text {
		diff.Files[0].Patch, diff.Files[1].Patch, diff.Files[2].NoPatch = "@@ -0,0 +1 @@\n+new\n", "@@ -1 +1 @@\n-old\n+newer\n", hutch.LargeFile
	}
	return diff, nil
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

func (s *Service) Hibernate(_ context.Context, sandbox string, req hutch.HibernateRequest) (hutch.Sandbox, error) {
	if req.FilesOnly {
		return s.become(sandbox, hutch.Stopped)
	}
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

package client

import (
	"context"
	"net/url"

	"hutch"
)

// Snapshot implements hutch.Service.
func (c *Client) Snapshot(ctx context.Context, sandbox string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return call[hutch.Snapshot](ctx, c, at("Snapshot", sandbox).check(req.Check()), req)
}

// CreateTemplate implements hutch.Service.
func (c *Client) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	return call[hutch.Snapshot](ctx, c, at("CreateTemplate").check(req.Check()), req)
}

// Snapshots implements hutch.Service.
func (c *Client) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	return call[[]hutch.Snapshot](ctx, c, at("Snapshots"), nil)
}

// TagSnapshot implements hutch.Service.
func (c *Client) TagSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	return call[hutch.Snapshot](ctx, c, at("TagSnapshot", snapshot).check(req.Check()), req)
}

// DeleteSnapshot implements hutch.Service.
func (c *Client) DeleteSnapshot(ctx context.Context, snapshot string) error {
	_, err := call[struct{}](ctx, c, at("DeleteSnapshot", snapshot), nil)
	return err
}

// DiffSnapshot implements hutch.Service.
func (c *Client) DiffSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	q := url.Values{}
	for name, value := range map[string]string{"to": req.To, "sandboxId": req.SandboxID, "path": req.Path} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, set := range map[string]bool{"text": req.Text, "wake": req.Wake} {
		if set {
			q.Set(name, "true")
		}
	}
	return call[hutch.SnapshotDiff](ctx, c, at("DiffSnapshot", snapshot).check(req.Check()).with(q), nil)
}

// Fork implements hutch.Service.
func (c *Client) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	if err := checkText("", "", req.Env); err != nil {
		return nil, err
	}
	return call[[]hutch.Sandbox](ctx, c, at("Fork", sandbox).check(req.Check()), req)
}

// Pause implements hutch.Service.
func (c *Client) Pause(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return call[hutch.Sandbox](ctx, c, at("Pause", sandbox), nil)
}

// Hibernate implements hutch.Service.
func (c *Client) Hibernate(ctx context.Context, sandbox string, req hutch.HibernateRequest) (hutch.Sandbox, error) {
	return call[hutch.Sandbox](ctx, c, at("Hibernate", sandbox), req)
}

// Resume implements hutch.Service.
func (c *Client) Resume(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return call[hutch.Sandbox](ctx, c, at("Resume", sandbox), nil)
}

// Restore creates a sandbox that starts from a snapshot.
func (c *Client) Restore(ctx context.Context, snapshot string) (*Sandbox, error) {
	return c.Open(ctx, hutch.CreateRequest{Snapshot: snapshot})
}

// Snapshot saves the sandbox's present state.
func (s *Sandbox) Snapshot(ctx context.Context, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return s.client.Snapshot(ctx, s.ID, req)
}

// Fork makes n copies of the sandbox's present state, 1 to [hutch.MaxForks].
func (s *Sandbox) Fork(ctx context.Context, n int) ([]*Sandbox, error) {
	if n < 1 { // to the server, 0 means that no number was given
		return nil, hutch.Errorf(hutch.Invalid, "%d copies of a sandbox cannot be made: give 1 to %d", n, hutch.MaxForks)
	}
	list, err := s.client.Fork(ctx, s.ID, hutch.ForkRequest{Count: n})
	var forks []*Sandbox
	for _, sb := range list {
		forks = append(forks, s.client.Handle(sb.ID))
	}
	return forks, err
}

// Pause freezes all programs of the sandbox until its next use.
func (s *Sandbox) Pause(ctx context.Context) error {
	_, err := s.client.Pause(ctx, s.ID)
	return err
}

// Hibernate puts the sandbox to sleep until its next use, with its memory if the runtime can keep it.
func (s *Sandbox) Hibernate(ctx context.Context) error {
	_, err := s.client.Hibernate(ctx, s.ID, hutch.HibernateRequest{})
	return err
}

// Resume continues the sandbox.
func (s *Sandbox) Resume(ctx context.Context) error {
	_, err := s.client.Resume(ctx, s.ID)
	return err
}

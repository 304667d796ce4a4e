package fleet

import (
	"cmp"
	"context"

	"hutch"
	"hutch/internal/caller"
)

// Create implements hutch.Service: it reserves the id and room on a node in one transaction, and then calls that node.
func (f *Fleet) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if err := f.node.serving(); err != nil {
		return hutch.Sandbox{}, err
	}
	if req.NormalizeID {
		req.ID = hutch.NormalizeID(req.ID)
	}
	if err := req.Check(); err != nil {
		return hutch.Sandbox{}, err
	}
	if req.ID == "" {
		req.ID = hutch.NewID("sb")
	}
	name := nameIn(ctx, req.ID)
	if f.resident.has(name) {
		return f.resident.Create(ctx, req)
	}
	want, err := f.want(ctx, name, req)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	for {
		at, made, err := f.dir.place(ctx, want)
		if err != nil {
			return hutch.Sandbox{}, err
		}
		if !made && f.carrier != nil { // it can be in the bucket
			f.forget(name) // it can have left the node where it was
			p, _, err := f.locate(ctx, name)
			switch {
			case err != nil:
				return hutch.Sandbox{}, err
			case p != nil:
				sb, err := p.Create(ctx, req)
				return sb, plain(err)
			}
			at = f.node.info.ID
		}
		if at == f.node.info.ID {
			return f.resident.Create(ctx, req)
		}
		sb, err := f.createAt(ctx, at, req)
		if err == nil {
			f.remember(name, at)
		}
		if made && notReached(err) {
			// The call did not reach the node, so its capacity is free again. Its lease will show that it is away.
			if err := f.dir.free(ctx, at, name); err != nil {
				return hutch.Sandbox{}, err
			}
			f.log.Warn("a node does not answer: the sandbox is made on another", "node", at, "sandbox", req.ID, "err", hutch.AsError(err).Cause)
			want.Not = append(want.Not, at)
			continue
		}
		return sb, plain(err)
	}
}

func (f *Fleet) createAt(ctx context.Context, node string, req hutch.CreateRequest) (hutch.Sandbox, error) {
	p, err := f.peer(node)
	if err != nil {
		return hutch.Sandbox{}, &connectError{err}
	}
	return p.Create(ctx, req)
}

// want returns the placement that a sandbox needs.
func (f *Fleet) want(ctx context.Context, name Name, req hutch.CreateRequest) (placement, error) {
	owner, _ := caller.OwnerOf(ctx)
	limits := req.Limits
	if req.InstanceType != "" {
		t, err := hutch.FindInstanceType(f.opt.Types, req.InstanceType)
		if err != nil {
			return placement{}, err
		}
		limits = t.Fill(limits)
	}
	only, from, err := f.begins(ctx, req)
	if err != nil {
		return placement{}, err
	}
	if from != nil {
		limits = from.Limits
	}
	limits.Memory = cmp.Or(limits.Memory, f.opt.Usual.Memory, 512)
	limits.CPU = cmp.Or(limits.CPU, f.opt.Usual.CPU, 1)
	return placement{
		Name: name, Memory: int64(limits.Memory), CPU: limits.CPU, Most: owner.MaxSandboxes, Only: only,
		About: About{Image: cmp.Or(req.Image, "host"), Runtime: req.Runtime, Labels: req.Labels, Limits: limits},
	}, nil
}

// begins returns the nodes with the snapshot or template that a sandbox starts from, and the snapshot if it is one; nil
// means any node.
func (f *Fleet) begins(ctx context.Context, req hutch.CreateRequest) (only []string, from *hutch.Snapshot, err error) {
	asked := cmp.Or(req.Snapshot, req.Template)
	wanted := cmp.Or(asked, req.Image)
	if len(req.Volumes) > 0 {
		only = []string{f.node.info.ID} // volumes are on the node that made them: docs/fleet.md
	}
	if wanted == "" || wanted == "host" || asked == "" && hutch.CheckTemplateName(wanted) != nil {
		return only, nil, nil
	}
	all, err := f.snapshots(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		if !s.IsCalled(wanted) || asked == "" && s.Template == nil {
			continue
		}
		return []string{s.node}, &s.Snapshot, nil
	}
	return only, nil, nil // the engine reports what is missing
}

// CreateTemplate implements hutch.Service. It runs on the node that has the template's snapshot, or the template that it replaces.
func (f *Fleet) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	if err := f.node.serving(); err != nil {
		return hutch.Snapshot{}, err
	}
	var at hutch.Service = f.resident
	if req.From != "" && hutch.CheckID(req.From) == nil {
		f.forget(nameIn(ctx, req.From)) // it can have left the node where it was
		p, _, err := f.locate(ctx, nameIn(ctx, req.From))
		if err != nil {
			return hutch.Snapshot{}, err
		}
		if p != nil {
			at = p
		}
	} else if hutch.CheckTemplateName(req.Name) == nil {
		var err error
		if at, err = f.withSnapshot(ctx, cmp.Or(req.Snapshot, req.Name)); err != nil {
			return hutch.Snapshot{}, err
		}
	}
	s, err := at.CreateTemplate(ctx, req)
	return s, plain(err)
}

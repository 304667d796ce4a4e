package engine

import (
	"cmp"
	"context"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/durable"
	"hutch/internal/image"
	"hutch/internal/instance"
	"hutch/internal/pool"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// Create implements hutch.Service.
func (e *Engine) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if e.namesTemplate(ctx, &req); req.Snapshot != "" || req.Template != "" {
		return e.createFrom(ctx, req)
	}
	if err := e.drafter.applyType(&req); err != nil {
		return hutch.Sandbox{}, err
	}
	if err := e.resolveImage(ctx, &req); err != nil {
		return hutch.Sandbox{}, err
	}
	rec, d, err := e.drafter.draft(ctx, req)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	return e.make(ctx, rec, func(s *sandbox) startPlan {
		return startPlan{Plan: instance.Plan{Spare: e.claim(s, instance.KindOf(rec.Sandbox)), Create: d.Create}}
	})
}

// make returns the sandbox of a record. If the sandbox does not exist yet, make creates it with the plan that how
// returns. It calls how with the lifecycle lock held.
func (e *lifecycle) make(ctx context.Context, rec store.Record, how func(*sandbox) startPlan) (hutch.Sandbox, error) {
	s, made, err := e.table.enter(ctx, rec, func() *sandbox {
		e.tasks.Add(1) // until make is done
		s := e.newSandbox(rec)
		s.Lock(context.Background()) // does not wait: no other caller has the sandbox yet
		return s
	})
	if err != nil {
		return hutch.Sandbox{}, err
	}
	if !made {
		sb, err := s.join(ctx)
		if s.Fault() == errCancelled && ctx.Err() == nil {
			return e.make(ctx, rec, how)
		}
		return sb, err
	}
	defer e.tasks.Done()
	defer s.Unlock()
	if err := e.volumes.sync(ctx, s); err != nil {
		e.abandon(ctx, s, err)
		return hutch.Sandbox{}, err
	}
	o := how(s)
	if o.Base != nil {
		s.SetBase(o.Base)
	}
	o.volumes = true
	if err := e.open(ctx, s, o); err != nil {
		e.abandon(ctx, s, err)
		return hutch.Sandbox{}, err
	}
	e.log.Info("created", "sandbox", s.ID(), "driver", rec.Sandbox.Runtime, "ready", o.Spare != nil, "snapshot", o.snapshot)
	e.created(ctx, s, o)
	return s.Sandbox(), nil
}

// resolveImage replaces the image of a request by the name that its record keeps. It does not look up the image of an
// existing sandbox.
func (e *lifecycle) resolveImage(ctx context.Context, req *hutch.CreateRequest) error {
	if err := req.Check(); err != nil || e.opt.Resolve == nil {
		return err
	}
	id := req.ID
	if req.NormalizeID {
		id = hutch.NormalizeID(id)
	}
	if _, err := e.find(ctx, id); err == nil {
		return nil
	}
	name, err := e.opt.Resolve(ctx, cmp.Or(req.Image, image.HostName), req.Pull)
	req.Image = name
	return err
}

// join waits for a sandbox, in case another call is still creating it.
func (s *sandbox) join(ctx context.Context) (hutch.Sandbox, error) {
	if err := s.Lock(ctx); err != nil {
		return hutch.Sandbox{}, err
	}
	defer s.Unlock()
	if err := s.Fault(); err != nil {
		return hutch.Sandbox{}, err
	}
	if s.Gone() {
		return hutch.Sandbox{}, hutch.Errorf(hutch.Conflict, "the sandbox %q was destroyed meanwhile: create it again", s.ID())
	}
	return s.Sandbox(), nil
}

// errCancelled is the error for the other callers of a sandbox when the call that was creating it was cancelled.
var errCancelled error = hutch.Errorf(hutch.Conflict, "the sandbox was not created, because the request for it was cancelled: create it again")

// abandon forgets a sandbox that could not be created.
func (e *lifecycle) abandon(ctx context.Context, s *sandbox, cause error) {
	e.log.Warn("create", "sandbox", s.ID(), "err", cause, "cause", hutch.AsError(cause).Cause)
	if ctx.Err() != nil {
		cause = errCancelled
	}
	e.table.remove(s)
	s.Abandon(cause)
}

// startPlan describes how to start a sandbox.
type startPlan struct {
	instance.Plan
	reason   *string // the reason in the record; can be nil
	snapshot string  // snapshot that the sandbox starts from
	forked   string  // the id of the sandbox that this sandbox is forked from
	volumes  bool    // whether the sandbox gets the files of its volumes
}

// open makes an instance for the sandbox and starts it. The caller holds the
// lifecycle lock.
func (e *lifecycle) open(ctx context.Context, s *sandbox, how startPlan) error {
	defer e.instances.Begin()()
	rec := s.Record()
	v := rec.Sandbox
	root, err := e.instances.Root(ctx, instance.KindOf(v))
	if err != nil {
		return err
	}
	how.Owner = v.Owner
	all := append(root.Env[:len(root.Env):len(root.Env)], instance.Environ(rec.Env)...)
	inst, agent, err := e.instances.Open(ctx, v.Runtime, how.Plan, driver.Spec{
		ID: rec.Key, Image: v.Image, Root: root, Limits: v.Limits,
		Boot: instance.Boot(rec.Token, v.ID, root, all, v.Limits),
	})
	if err != nil {
		return durable.Explained(err, e.opt.Dir)
	}
	if how.volumes {
		err = e.volumes.fill(ctx, v, agent)
	}
	if err == nil {
		err = e.admit(ctx, s, inst, agent, how.reason)
	}
	if err != nil {
		e.instances.Discard(inst, agent)
	}
	return err
}

// admit marks a sandbox as running in an instance, on disk first.
func (e *lifecycle) admit(ctx context.Context, s *sandbox, inst driver.Instance, agent *wire.Client, reason *string) error {
	why := ""
	if reason != nil {
		why = *reason
	}
	if err := s.CommitRun(ctx, inst, agent, why); err != nil {
		return err
	}
	e.background(func() { e.watch(s, inst) })
	return nil
}

// claim returns an instance of the pool for a new sandbox, or nil if none is ready there. The caller holds the
// lifecycle lock.
func (e *lifecycle) claim(s *sandbox, k pool.Kind) *instance.Spare {
	spare := e.instances.Take(k)
	if spare != nil {
		s.Assign(spare.HandOver())
	}
	return spare
}

package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/caller"
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
	if err := e.applyType(&req); err != nil {
		return hutch.Sandbox{}, err
	}
	if err := e.resolveImage(ctx, &req); err != nil {
		return hutch.Sandbox{}, err
	}
	rec, d, err := e.draft(ctx, req)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	return e.make(ctx, rec, func(s *sandbox) startPlan {
		return startPlan{Plan: instance.Plan{Spare: e.claim(s, instance.KindOf(rec.Sandbox)), Create: d.Create}}
	})
}

// make returns the sandbox of a record. If it does not exist yet, make creates one with the
// plan that how returns; it calls how with the lifecycle lock held.
func (e *lifecycle) make(ctx context.Context, rec store.Record, how func(*sandbox) startPlan) (hutch.Sandbox, error) {
	s, made, err := e.enter(ctx, rec)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	if !made {
		sb, err := e.join(ctx, s)
		if s.Fault() == errCancelled && ctx.Err() == nil {
			return e.make(ctx, rec, how)
		}
		return sb, err
	}
	defer e.tasks.Done()
	defer s.Unlock()
	if err := e.syncVolumes(ctx, s); err != nil {
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

// draft turns a request into the record of a sandbox to be.
func (e *lifecycle) draft(ctx context.Context, req hutch.CreateRequest) (store.Record, driver.Driver, error) {
	if req.NormalizeID {
		req.ID = hutch.NormalizeID(req.ID)
	}
	if req.ID == "" {
		req.ID = hutch.NewID("sb")
	}
	if err := cmp.Or(req.Check(), e.checkLimits(req.Limits)); err != nil {
		return store.Record{}, nil, err
	}
	d, err := e.instances.Driver(req.Runtime)
	if err != nil {
		return store.Record{}, nil, err
	}
	network, err := e.networkFor(ctx, req.Network)
	if err == nil {
		network, err = network.Completed(hutch.Network{})
	}
	if err == nil {
		err = e.checkLinks(ctx, network.Links)
	}
	if err != nil {
		return store.Record{}, nil, err
	}
	now := time.Now()
	owner, _ := caller.OwnerOf(ctx)
	v := hutch.Sandbox{
		ID: req.ID, Owner: nameOf(ctx, "").Owner, Status: hutch.Creating, Image: req.Image, User: req.User, Runtime: d.Name(), InstanceType: req.InstanceType,
		CreatedAt: now.UTC(), LastUsedAt: now, KeepAlive: req.KeepAlive,
		SleepAfter: req.SleepAfter, OnIdle: req.OnIdle,
		Limits: fillLimits(req.Limits, e.opt.MaxLimits, d.Defaults()), Labels: req.Labels, Volumes: req.Volumes,
	}
	if v.Image == "" {
		v.Image = image.HostName
	}
	if v.SleepAfter == 0 {
		v.SleepAfter = hutch.InSeconds(e.opt.SleepAfter)
	}
	if v.OnIdle == "" {
		v.OnIdle = hutch.IdleHibernate
	}
	if req.Timeout > 0 {
		end := now.Add(req.Timeout.Duration())
		v.ExpiresAt = &end
	}
	env := maps.Clone(e.opt.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	env["SANDBOX_ID"] = v.ID
	env["SANDBOX_TIMEOUT"] = strconv.FormatFloat(e.opt.ExecTimeout.Seconds(), 'f', -1, 64)
	rec := store.Record{Sandbox: v, Key: v.ID, Env: env, Secrets: req.Secrets, Token: rand.Text(), Most: owner.MaxSandboxes}
	if err := cmp.Or(e.secrets.check(&rec), e.checkVolumes(v.Owner, v.Volumes)); err != nil {
		return store.Record{}, nil, err
	}
	if v.Owner != "" { // others may have a sandbox with that id
		rec.Key = hutch.NewID("o")
	}
	return rec, d, e.networks.hidden.keep(&rec, network)
}

// enter returns the sandbox of a record from the table. If there is none, it adds a
// new one, whose lifecycle lock the caller then holds.
func (e *lifecycle) enter(ctx context.Context, rec store.Record) (s *sandbox, made bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, false, hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
	}
	if s := e.sandboxes[box.Name{Owner: rec.Sandbox.Owner, ID: rec.Sandbox.ID}]; s != nil {
		return s, false, nil
	}
	if err := hutch.CheckNewID(rec.Sandbox.ID); err != nil { // an existing one may have such a name
		return nil, false, err
	}
	if err := cmp.Or(e.roomLocked(ctx, 1), e.claimLocked(rec.Sandbox)); err != nil {
		return nil, false, err
	}
	if err := e.templateRoomLocked(rec); err != nil {
		return nil, false, err
	}
	e.tasks.Add(1) // until make is done
	s = e.newSandbox(rec)
	s.Lock(context.Background()) // no other caller has it yet
	e.sandboxes[s.Name()] = s
	return s, true, nil
}

// roomLocked refuses more sandboxes at two limits: of the owner's sandboxes, awake
// or asleep, and of all that take memory.
func (e *lifecycle) roomLocked(ctx context.Context, more int) error {
	owner, _ := caller.OwnerOf(ctx)
	own := 0
	for n := range e.sandboxes {
		if n.Owner == owner.ID {
			own++
		}
	}
	if owner.MaxSandboxes > 0 && own+more > owner.MaxSandboxes {
		return hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once of this token, awake or asleep, is reached: destroy one", owner.MaxSandboxes).With("limit", "sandboxes")
	}
	return e.memoryLocked(more)
}

// memoryLocked refuses more sandboxes that take memory when the limit of them is
// reached, or the host is short of memory.
func (e *lifecycle) memoryLocked(more int) error {
	active := 0
	for _, s := range e.sandboxes {
		if s.TakesMemory() {
			active++
		}
	}
	switch {
	case active+more > e.opt.MaxSandboxes:
		return hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once (maxSandboxes) is reached: destroy one, or wait until an idle one sleeps", e.opt.MaxSandboxes).With("limit", "maxSandboxes")
	case e.instances.Scarce():
		return instance.ErrShort
	}
	return nil
}

// join waits for a sandbox that another call may still be creating.
func (e *lifecycle) join(ctx context.Context, s *sandbox) (hutch.Sandbox, error) {
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
	e.mu.Lock()
	delete(e.sandboxes, s.Name())
	e.mu.Unlock()
	s.Abandon(cause)
}

// startPlan says how to start a sandbox.
type startPlan struct {
	instance.Plan
	reason   *string // the reason for its record; can be nil
	snapshot string  // snapshot that it starts from
	forked   string  // the id of the sandbox that it is forked from
	volumes  bool    // whether it gets the files of its volumes
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
		err = e.fillVolumes(ctx, v, agent)
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

// claim returns an instance of the pool for a new sandbox, or nil if none waits. The
// caller holds the lifecycle lock.
func (e *lifecycle) claim(s *sandbox, k pool.Kind) *instance.Spare {
	spare := e.instances.Take(k)
	if spare != nil {
		s.Assign(spare.HandOver())
	}
	return spare
}

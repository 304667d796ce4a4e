package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"runtime"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/driver"
	"hutch/internal/durable"
	"hutch/internal/image"
	"hutch/internal/snapshots"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// Create implements hutch.Service.
func (e *Engine) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if req.Snapshot != "" {
		return e.createFrom(ctx, req)
	}
	rec, d, err := e.draft(ctx, req)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	return e.make(ctx, rec, func(s *sandbox) opening { return opening{spare: e.claim(s, kindOf(rec.Sandbox)), create: d.Create} })
}

// make makes the sandbox of a record, in the way that how says, which is
// called with the lifecycle lock held; or finds the one that is there.
func (e *Engine) make(ctx context.Context, rec store.Record, how func(*sandbox) opening) (hutch.Sandbox, error) {
	s, made, err := e.enter(ctx, rec)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	if !made {
		return e.join(ctx, s)
	}
	defer e.tasks.Done()
	defer s.Unlock()
	o := how(s)
	if o.below != nil {
		s.SetBase(o.below)
	}
	if err := e.open(ctx, s, o); err != nil {
		e.abandon(s, err)
		return hutch.Sandbox{}, err
	}
	e.log.Info("created", "sandbox", s.ID(), "driver", rec.Sandbox.Runtime, "ready", o.spare != nil, "snapshot", o.snapshot)
	return s.Sandbox(), nil
}

// draft turns a request into the record of a sandbox to be.
func (e *Engine) draft(ctx context.Context, req hutch.CreateRequest) (store.Record, driver.Driver, error) {
	if req.NormalizeID {
		req.ID = hutch.NormalizeID(req.ID)
	}
	if req.ID == "" {
		req.ID = hutch.NewID("sb")
	}
	if err := cmp.Or(req.Check(), e.checkLimits(req.Limits)); err != nil {
		return store.Record{}, nil, err
	}
	d, err := e.driver(req.Runtime)
	if err != nil {
		return store.Record{}, nil, err
	}
	network, err := e.networkFor(ctx, req.Network)
	if err == nil {
		err = e.checkLinks(ctx, network.Links)
	}
	if err != nil {
		return store.Record{}, nil, err
	}
	now := time.Now()
	v := hutch.Sandbox{
		ID: req.ID, Owner: nameOf(ctx, "").Owner, Status: hutch.Creating, Image: req.Image, Runtime: d.Name(),
		CreatedAt: now.UTC(), LastUsedAt: now, KeepAlive: req.KeepAlive,
		SleepAfter: req.SleepAfter, OnIdle: req.OnIdle,
		Limits: fillLimits(req.Limits, e.opt.MaxLimits, d.Name()), Network: network, Labels: req.Labels,
	}
	if v.Image == "" {
		v.Image = defaultImage
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
	rec := store.Record{Sandbox: v, Place: v.ID, Env: env, Secrets: req.Secrets, Token: rand.Text()}
	if err := e.checkSecrets(&rec); err != nil {
		return store.Record{}, nil, err
	}
	if v.Owner != "" { // others may have a sandbox of that id
		rec.Place = hutch.NewID("o")
	}
	return rec, d, nil
}

// defaultImage is that of sandboxes that name none.
const defaultImage = "host"

// enter puts a new sandbox into the table, with its lifecycle lock held; or finds the one
// that is there.
func (e *Engine) enter(ctx context.Context, rec store.Record) (s *sandbox, made bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, false, hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
	}
	if s := e.sandboxes[box.Name{Owner: rec.Sandbox.Owner, ID: rec.Sandbox.ID}]; s != nil {
		return s, false, nil
	}
	if err := hutch.CheckNewID(rec.Sandbox.ID); err != nil { // one that exists may have such a name
		return nil, false, err
	}
	if err := e.roomLocked(ctx, 1); err != nil {
		return nil, false, err
	}
	e.tasks.Add(1) // until make is done
	s = e.newSandbox(rec)
	s.Lock(context.Background()) // nobody else has it yet
	e.sandboxes[s.Name()] = s
	return s, true, nil
}

// roomLocked refuses more sandboxes where an owner has enough, awake or asleep, as
// those that sleep take the disk; or where there are enough that take memory.
func (e *Engine) roomLocked(ctx context.Context, more int) error {
	owner, _ := hutch.OwnerOf(ctx)
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

// memoryLocked refuses more sandboxes that take memory when there are enough, or
// there is too little.
func (e *Engine) memoryLocked(more int) error {
	active := 0
	for _, s := range e.sandboxes {
		if s.TakesMemory() {
			active++
		}
	}
	switch {
	case active+more > e.opt.MaxSandboxes:
		return hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once (maxSandboxes) is reached: destroy one, or wait until an idle one sleeps", e.opt.MaxSandboxes).With("limit", "maxSandboxes")
	case e.scarceLocked():
		return errShort
	}
	return nil
}

// join waits until a sandbox that another call may be creating is there.
func (e *Engine) join(ctx context.Context, s *sandbox) (hutch.Sandbox, error) {
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

// abandon forgets a sandbox that never came to be.
func (e *Engine) abandon(s *sandbox, cause error) {
	e.log.Warn("create", "sandbox", s.ID(), "err", cause, "cause", hutch.AsError(cause).Cause)
	e.mu.Lock()
	delete(e.sandboxes, s.Name())
	e.mu.Unlock()
	s.Abandon(cause)
}

// opening is how a sandbox comes to run.
type opening struct {
	spare    *spare            // its place, if there is one already
	tell     map[string]string // what the interpreters that live there are told
	create   func(context.Context, driver.Spec) (driver.Instance, error)
	fill     func(*wire.Client) error // what was created, before anybody else can use it; may be nil
	below    *snapshots.Base          // what it holds of others' files; may be nil
	reason   *string                  // what to say of it then; may be nil
	snapshot string                   // that it begins as
}

// open makes a place for the sandbox, whose lifecycle lock the caller holds, and sets it
// running.
func (e *Engine) open(ctx context.Context, s *sandbox, how opening) error {
	e.creating.Add(1)
	defer e.creating.Add(-1)
	rec := s.Record()
	v := rec.Sandbox
	root, err := e.opt.Image(ctx, v.Image)
	if err != nil {
		return err
	}
	all := append(root.Env[:len(root.Env):len(root.Env)], pairs(rec.Env)...)
	inst, agent, err := e.settle(ctx, how, driver.Spec{ID: rec.Place, Root: root, Limits: v.Limits, Boot: boot(rec.Token, v.ID, all, v.Limits)})
	if err != nil {
		return durable.Explained(err, e.opt.Dir)
	}
	err = e.admit(ctx, s, inst, agent, how.reason)
	if err != nil {
		e.scrap(inst, agent)
	}
	return err
}

// scrap frees a place that nobody uses; where nothing has run yet, agent is nil.
func (e *Engine) scrap(inst driver.Instance, agent *wire.Client) {
	if agent != nil {
		agent.Close()
	}
	if err := e.raze(inst); err != nil {
		e.log.Error("free a place that nobody uses", "place", inst.ID(), "err", err)
	}
}

// settle gives a sandbox the place that is ready for it or, when that is of no
// use after all, makes one.
func (e *Engine) settle(ctx context.Context, how opening, spec driver.Spec) (driver.Instance, *wire.Client, error) {
	if s := how.spare; s != nil {
		err := s.become(ctx, spec, how.tell)
		if err == nil {
			return s.inst, s.agent, nil
		}
		e.log.Warn("use a spare place", "place", s.place, "err", err)
		e.discard([]*spare{s})
	}
	inst, err := e.place(ctx, how.create, spec)
	if err != nil {
		return nil, nil, err
	}
	agent := wire.NewClient(inst.Dial, spec.Boot.Token)
	if how.fill == nil {
		return inst, agent, nil
	}
	if err := how.fill(agent); err != nil {
		e.scrap(inst, agent)
		return nil, nil, err
	}
	return inst, agent, nil
}

// boot is what the agent of a place is told.
func boot(token, hostname string, env []string, l hutch.Limits) wire.Boot {
	return wire.Boot{Token: token, Home: image.Home, Dir: image.Workspace, Hostname: hostname, Env: env, MaxLive: l.Processes}
}

// atOnce is how many places are made at once: more would only make each of them
// later.
func atOnce() int { return 2 * runtime.NumCPU() }

// createTime bounds how long a driver may take for a place.
const createTime = time.Minute

// place makes a place in good time, or none.
func (e *Engine) place(ctx context.Context, create func(context.Context, driver.Spec) (driver.Instance, error), spec driver.Spec) (driver.Instance, error) {
	select {
	case e.making <- struct{}{}:
		defer func() { <-e.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	late := hutch.Errorf(hutch.Unavailable, "the sandbox was not ready within %v: the host is overloaded, or the runtime hangs; try again, or look at `hutch doctor`", createTime)
	ctx, cancel := context.WithTimeoutCause(ctx, createTime, late)
	defer cancel()
	spec.Network = e.opt.Gateway != nil
	killed := e.kills()
	inst, err := create(ctx, spec)
	switch {
	case err == nil:
	case context.Cause(ctx) == error(late):
		err = late.Because(err)
	case e.shortage(err, killed):
		err = errShort.Because(err)
	}
	return inst, err
}

// admit sets a sandbox running in a place, on disk first.
func (e *Engine) admit(ctx context.Context, s *sandbox, inst driver.Instance, agent *wire.Client, reason *string) error {
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

func pairs(env map[string]string) []string {
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

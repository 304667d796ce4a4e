package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/durable"
	"hutch/internal/wire"
)

// destroyTime bounds how long a place may take to go.
const destroyTime = 30 * time.Second

// background runs f as a task that Close waits for; not after Close.
func (e *Engine) background(f func()) {
	select {
	case <-e.ctx.Done():
	default:
		e.tasks.Go(f)
	}
}

// use counts a use of the sandbox and returns its agent, waking it when it
// sleeps. done ends the use.
func (e *Engine) use(ctx context.Context, id string) (s *sandbox, agent *wire.Client, err error) {
	if s, err = e.find(ctx, id); err != nil {
		return nil, nil, err
	}
	if agent := e.begin(s); agent != nil {
		return s, agent, nil
	}
	// It is being made, sleeps, or is changing its state: wait for the turn.
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	if err := s.take(ctx); err != nil {
		return nil, nil, err
	}
	defer s.put()
	if err := e.wake(ctx, s); err != nil {
		return nil, nil, err
	}
	return s, e.begin(s), nil
}

// ask makes a call to the agent of a sandbox, which is in use meanwhile.
func (e *Engine) ask(ctx context.Context, id string, call func(*wire.Client) error) error {
	s, agent, err := e.use(ctx, id)
	if err != nil {
		return err
	}
	defer e.done(s)
	if err := call(agent); err != nil {
		return e.diagnose(ctx, s, agent, err)
	}
	return nil
}

// hold has do work on a sandbox that is neither being made nor destroyed nor
// changing its state meanwhile: its turn is held. It need not run.
func (e *Engine) hold(ctx context.Context, id string, do func(*sandbox) error) error {
	s, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.put()
	if s.leaving() {
		return notFound(id)
	}
	return do(s)
}

// begin counts a use of a running sandbox; nil when it does not run.
func (e *Engine) begin(s *sandbox) *wire.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agent == nil || s.gone {
		return nil
	}
	s.uses++
	e.calls.Add(1)
	return s.agent
}

// done ends a use.
func (e *Engine) done(s *sandbox) {
	e.calls.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses--
	s.rec.Sandbox.LastUsedAt = time.Now()
	if s.uses == 0 {
		e.armLocked(s)
	}
}

// wake makes the sandbox, whose turn the caller holds, running if it can.
func (e *Engine) wake(ctx context.Context, s *sandbox) error {
	s.mu.Lock()
	status, runtime, gone, fault := s.rec.Sandbox.Status, s.rec.Sandbox.Runtime, s.gone, s.fault
	s.mu.Unlock()
	switch {
	case fault != nil:
		return fault
	case gone:
		return notFound(s.id)
	case status == hutch.Running:
		return e.unpause(ctx, s)
	}
	d, err := e.driver(runtime)
	if err != nil {
		return err
	}
	if err := e.reserve(s); err != nil {
		return err
	}
	defer s.waking.Store(false)
	switch status {
	case hutch.Hibernated:
		err = e.recall(ctx, s, d)
	case hutch.Failed:
		err = e.startAnew(ctx, s, d)
	default:
		err = e.restart(ctx, s, d)
	}
	if err == nil {
		e.log.Info("woken", "sandbox", s.id)
	}
	return err
}

// startAnew starts a lost sandbox empty. Its loss is reported once before, so
// that no caller takes it for what it was.
func (e *Engine) startAnew(ctx context.Context, s *sandbox, d driver.Driver) error {
	s.mu.Lock()
	told, reason := s.told, s.rec.Sandbox.Reason
	s.told = true
	s.mu.Unlock()
	if !told {
		return hutch.Errorf(hutch.Conflict, "the sandbox %q is lost, with its files: %s. The next use starts it empty; or destroy it and create it from a snapshot", s.id, reason).With("sandboxId", s.id)
	}
	anew := "started empty: " + strings.TrimPrefix(reason, "started empty: ")
	return e.open(ctx, s, opening{create: d.Create, reason: &anew})
}

// reserve counts a sandbox that is about to wake among those that run, if there
// is room for one more.
func (e *Engine) reserve(s *sandbox) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.memoryLocked(1); err != nil {
		return err
	}
	s.waking.Store(true)
	return nil
}

// restart makes a new place for a stopped sandbox, and puts its files there.
func (e *Engine) restart(ctx context.Context, s *sandbox, d driver.Driver) error {
	if e.salvaged(s.place) {
		return e.refill(ctx, s, d)
	}
	fill := func(a *wire.Client) error { return e.unpack(ctx, e.filesOf(s.place), a) }
	if err := e.open(ctx, s, opening{create: d.Create, fill: fill}); err != nil {
		return err
	}
	if err := os.Remove(e.filesOf(s.place)); err != nil {
		e.log.Error("remove the files of a woken sandbox", "sandbox", s.id, "err", err)
	}
	return nil
}

// armLocked sets the alarm for the next thing that time alone will do to s.
func (e *Engine) armLocked(s *sandbox) {
	v := &s.rec.Sandbox
	var next time.Time
	if v.ExpiresAt != nil {
		next = *v.ExpiresAt
	}
	if v.Status == hutch.Running && !v.KeepAlive && !v.Paused && s.uses == 0 {
		if idle := v.LastUsedAt.Add(v.SleepAfter.Duration()); next.IsZero() || idle.Before(next) {
			next = idle
		}
	}
	if next.IsZero() || s.gone {
		s.alarm.stop()
		return
	}
	s.alarm.set(time.Until(next), func() { e.background(func() { e.due(s) }) })
}

// due does what time has brought: the end of a lifetime, or of an idle one.
func (e *Engine) due(s *sandbox) {
	if err := s.take(e.ctx); err != nil {
		return
	}
	defer s.put()
	s.mu.Lock()
	v, now := s.rec.Sandbox, time.Now()
	idle := v.Status == hutch.Running && !v.KeepAlive && !v.Paused && s.uses == 0 && !now.Before(v.LastUsedAt.Add(v.SleepAfter.Duration()))
	expired := v.ExpiresAt != nil && !now.Before(*v.ExpiresAt)
	gone := s.gone
	s.mu.Unlock()
	var err error
	switch {
	case gone:
		return
	case expired:
		err = e.destroy(e.ctx, s, "its lifetime ended")
	case idle && v.OnIdle == hutch.IdleDestroy:
		err = e.destroy(e.ctx, s, "idle")
	case idle:
		err = e.sleep(s, v.OnIdle)
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		e.log.Error("idle or expired", "sandbox", s.id, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.rec.Sandbox.Status == hutch.Running && !now.Before(s.rec.Sandbox.LastUsedAt) {
		s.rec.Sandbox.LastUsedAt = now // try again after another idle time
	}
	e.armLocked(s)
}

// sleep puts an idle sandbox to sleep, whose turn the caller holds. Where the
// runtime can keep memory, it hibernates if it is to. Else its files are kept;
// one that was to keep its memory too then goes on while it has background
// processes: nothing is to be lost.
func (e *Engine) sleep(s *sandbox, how hutch.IdleAction) error {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	s.mu.Lock()
	inst, agent, expires, since := s.inst, s.agent, s.rec.Sandbox.ExpiresAt, s.rec.Sandbox.LastUsedAt
	s.rouse = cancel
	s.mu.Unlock()
	if expires != nil { // then there is nothing to keep
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, *expires)
		defer stop()
	}
	if saver, ok := driver.As[driver.Saver](inst); ok && how == hutch.IdleHibernate {
		return e.hibernate(ctx, s, saver, agent, since, false)
	}
	live, err := liveProcesses(ctx, agent)
	if err != nil {
		return err
	}
	if how == hutch.IdleHibernate && len(live) > 0 {
		return nil
	}
	if err := e.quiet(agent, live); err != nil {
		return err
	}
	if _, err := e.pack(ctx, s, agent, e.filesOf(s.place), true); err != nil {
		return err
	}
	if err := errors.Join(durable.Sync(e.filesOf(s.place)), durable.Sync(e.filesDir())); err != nil {
		return errors.Join(err, os.Remove(e.filesOf(s.place)))
	}
	e.account(ctx, s, inst)
	if !s.rest(nil, since) {
		return os.Remove(e.filesOf(s.place)) // used meanwhile: they are not as they were
	}
	if err := e.lay(s, hutch.Stopped, "idle: files are kept, processes have ended"); err != nil {
		e.reuse(s, inst, agent)
		return errors.Join(err, os.Remove(e.filesOf(s.place)))
	}
	agent.Close()
	e.log.Info("stopped", "sandbox", s.id)
	return e.raze(inst)
}

// stir has a sandbox give up going to sleep, which its files may make slow.
func (s *sandbox) stir() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rouse != nil {
		s.rouse()
	}
}

// quiet ends background processes: asked first, then killed.
func (e *Engine) quiet(agent *wire.Client, live []wire.Process) error {
	const grace = 3 * time.Second
	ctx, cancel := context.WithTimeout(e.ctx, grace)
	defer cancel()
	for _, p := range live {
		agent.Signal(ctx, p.ID, 15)
	}
	for _, p := range live {
		if _, err := agent.Attach(ctx, wire.Attach{Process: p.ID, Follow: true}, nil); err == nil {
			continue
		}
		if err := agent.Signal(e.ctx, p.ID, 9); err != nil && !errors.Is(err, hutch.NotFound) {
			return err
		}
	}
	return nil
}

func liveProcesses(ctx context.Context, agent *wire.Client) ([]wire.Process, error) {
	all, err := agent.List(ctx)
	var live []wire.Process
	for _, p := range all {
		if p.Status.Live() {
			live = append(live, p)
		}
	}
	return live, err
}

// outOfMemory is why a sandbox failed whose place was killed as a whole.
const outOfMemory = "it reached its memory limit and was killed"

// watch ends the network of a place here, and waits for the place to die.
func (e *Engine) watch(s *sandbox, inst driver.Instance) {
	defer e.attach(s, inst)()
	e.background(func() { e.guard(s, inst) })
	select {
	case <-inst.Done():
	case <-e.ctx.Done():
		return
	}
	e.died(s, inst)
}

// died marks a sandbox whose place is dead, unless that was on purpose.
func (e *Engine) died(s *sandbox, inst driver.Instance) {
	s.mu.Lock()
	mine := s.inst == inst
	s.mu.Unlock()
	if !mine {
		return
	}
	reason := "its first process died"
	if u, err := inst.Usage(e.ctx); err == nil && u.OOMKills > 0 {
		reason = outOfMemory
	}
	e.fail(s, inst, reason)
}

// fail marks a sandbox whose place is dead or of no use, and frees the place.
func (e *Engine) fail(s *sandbox, inst driver.Instance, reason string) {
	if s.take(e.ctx) != nil {
		return
	}
	defer s.put()
	e.failLocked(s, inst, reason)
}

// failLocked is fail for a caller that holds the turn.
func (e *Engine) failLocked(s *sandbox, inst driver.Instance, reason string) {
	s.mu.Lock()
	if s.inst != inst || s.gone {
		s.mu.Unlock()
		return
	}
	agent := cmp.Or(s.agent, s.paused)
	s.mu.Unlock()
	e.account(e.ctx, s, inst) // some tell even when they are dead
	s.mu.Lock()
	s.moveLocked(hutch.Failed, reason)
	e.armLocked(s)
	s.mu.Unlock()
	agent.Close()
	e.log.Warn("failed", "sandbox", s.id, "reason", reason)
	if err := errors.Join(e.save(e.ctx, s), e.raze(inst)); err != nil {
		e.log.Error("failed sandbox", "sandbox", s.id, "err", err)
	}
}

// raze frees a place, even when the call that wants it gives up.
func (e *Engine) raze(inst driver.Instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), destroyTime)
	defer cancel()
	return inst.Destroy(ctx)
}

// Destroy implements hutch.Service.
func (e *Engine) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	s, err := e.find(ctx, id)
	if errors.Is(err, hutch.NotFound) {
		return receipt(id), nil
	}
	if err != nil {
		return hutch.Destruction{}, err
	}
	s.stir()
	if err := s.take(ctx); err != nil {
		return hutch.Destruction{}, err
	}
	defer s.put()
	if !force {
		if err := e.refuseLive(ctx, s); err != nil {
			return hutch.Destruction{}, err
		}
	}
	if err := e.destroy(ctx, s, "asked for"); err != nil {
		return hutch.Destruction{}, err
	}
	return receipt(id), nil
}

func receipt(id string) hutch.Destruction {
	return hutch.Destruction{ID: id, Status: hutch.Destroyed, ResourcesReleased: true, DestroyedAt: time.Now().UTC()}
}

// refuseLive is the error for a sandbox with live background processes.
func (e *Engine) refuseLive(ctx context.Context, s *sandbox) error {
	agent := e.begin(s)
	if agent == nil {
		return nil
	}
	defer e.done(s)
	live, err := liveProcesses(ctx, agent)
	if err != nil || len(live) == 0 {
		return nil // an agent that does not answer keeps nobody from destroying
	}
	names := make([]string, 0, len(live))
	for _, p := range live {
		names = append(names, clean(cmp.Or(p.Name, p.ID), hutch.MaxID))
	}
	return hutch.Errorf(hutch.Conflict, "the sandbox %q has running background processes (%s): end them first, or destroy with force", s.id, strings.Join(names, ", "))
}

// destroy frees everything of the sandbox, whose turn the caller holds.
func (e *Engine) destroy(ctx context.Context, s *sandbox, why string) error {
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil
	}
	inst, agent := s.inst, cmp.Or(s.agent, s.paused)
	s.mu.Unlock()
	if inst != nil {
		e.account(ctx, s, inst)
		s.mu.Lock()
		s.inst = nil // its death is no failure
		s.mu.Unlock()
		if err := e.raze(inst); err != nil {
			s.mu.Lock()
			s.inst = inst
			s.mu.Unlock()
			return fmt.Errorf("destroy sandbox %s: %w", s.id, err)
		}
		agent.Close()
	}
	for _, x := range s.ports() {
		e.exposed.Reserve(s.owner, x)
	}
	if err := e.forget(context.WithoutCancel(ctx), s, why); err != nil {
		return err
	}
	e.exposed.Remove(s.ports())
	s.disconnect()
	e.retire(s)
	e.log.Info("destroyed", "sandbox", s.id, "why", why)
	return nil
}

// forget removes what is on disk of a sandbox, but for what it used, and has it
// be gone: nobody writes a record of it again.
func (e *Engine) forget(ctx context.Context, s *sandbox, why string) error {
	if err := os.Remove(e.filesOf(s.place)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(e.memoryOf(s.place)); err != nil {
		return err
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	used := s.used()
	used.Disk = 0
	if e.opt.Store != nil {
		if err := e.opt.Store.Retire(ctx, s.place, s.owner, used); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moveLocked(hutch.Destroyed, why)
	s.gone = true
	s.alarm.stop()
	return nil
}

func (e *Engine) filesOf(place string) string { return filepath.Join(e.filesDir(), place+".tar") }

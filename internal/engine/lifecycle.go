package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/saved"
	"hutch/internal/wire"
)

// background runs f as a task that Close waits for. After Close it does nothing.
func (e *lifecycle) background(f func()) {
	select {
	case <-e.ctx.Done():
	default:
		e.tasks.Go(f)
	}
}

// use wakes the sandbox if it sleeps, counts a use of it and returns its agent. EndUse ends the use.
func (e *lifecycle) use(ctx context.Context, id string) (s *sandbox, agent *wire.Client, err error) {
	if s, err = e.find(ctx, id); err != nil {
		return nil, nil, err
	}
	if agent := s.BeginUse(); agent != nil {
		return s, agent, nil
	}
	// It is being made, sleeps, or is changing its state.
	if err := s.LockToUse(ctx); err != nil {
		return nil, nil, err
	}
	defer s.Unlock()
	if err := e.wake(ctx, s); err != nil {
		return nil, nil, err
	}
	return s, s.BeginUse(), nil
}

// ask calls the agent of a sandbox, during a use of it.
func (e *lifecycle) ask(ctx context.Context, id string, call func(*wire.Client) error) error {
	s, agent, err := e.use(ctx, id)
	if err != nil {
		return err
	}
	defer s.EndUse()
	if err := call(agent); err != nil {
		return e.diagnose(ctx, s, agent, err)
	}
	return nil
}

// hold calls do with the lifecycle lock of a sandbox. It does not wake the sandbox.
func (e *lifecycle) hold(ctx context.Context, id string, do func(*sandbox) error) error {
	s, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	if err := s.Lock(ctx); err != nil {
		return err
	}
	defer s.Unlock()
	if s.Leaving() {
		return notFound(id)
	}
	return do(s)
}

// wake wakes the sandbox. The caller holds the lifecycle lock.
func (e *lifecycle) wake(ctx context.Context, s *sandbox) error {
	if err := s.Fault(); err != nil {
		return err
	}
	if s.Gone() {
		return notFound(s.ID())
	}
	v := s.Record().Sandbox
	if v.Status == hutch.Running {
		return e.unpause(ctx, s)
	}
	d, err := e.instances.Driver(v.Runtime)
	if err != nil {
		return err
	}
	if v.Status == hutch.Failed {
		if err := e.reportLoss(s); err != nil {
			return err
		}
	}
	if err := e.reserveRoom(s); err != nil {
		return err
	}
	defer s.SetWaking(false)
	if e.opt.Waking != nil && (v.Status.Sleeps() || v.Status == hutch.Failed) {
		done, err := e.opt.Waking(ctx, v.Owner, v.ID)
		if err != nil {
			return err
		}
		defer done()
	}
	switch v.Status {
	case hutch.Hibernated:
		err = e.wakeFromMemory(ctx, s, d)
	case hutch.Failed:
		err = e.startEmpty(ctx, s, d)
	default:
		err = e.wakeFromFiles(ctx, s, d)
	}
	if err != nil {
		return err
	}
	e.log.Info("woken", "sandbox", s.ID())
	e.happened(ctx, s, "Woken", s.Sandbox().Reason)
	if err := e.markEnvSent(ctx, s); err != nil { // it gets them again then
		e.log.Error("write that a sandbox knows its variables", "sandbox", s.ID(), "err", err)
	}
	return nil
}

// reportLoss returns an error the first time a lost sandbox is to wake, so that no
// caller mistakes the empty sandbox for the old one.
func (e *lifecycle) reportLoss(s *sandbox) error {
	if told, reason := s.ReportLoss(); !told {
		return hutch.Errorf(hutch.Conflict, "the sandbox %q is lost, with its files: %s. The next use starts it empty; or destroy it and create it from a snapshot", s.ID(), reason).Naming(hutch.AboutSandbox, s.ID())
	}
	return nil
}

// startEmpty starts a lost sandbox with no files.
func (e *lifecycle) startEmpty(ctx context.Context, s *sandbox, d driver.Driver) error {
	reason := s.Record().Sandbox.Reason
	why := "started empty: " + strings.TrimPrefix(reason, "started empty: ")
	return e.open(ctx, s, startPlan{Plan: instance.Plan{Create: d.Create}, reason: &why, volumes: true})
}

// reserveRoom counts a sandbox that is about to wake as running, if the limits allow
// one more.
func (e *lifecycle) reserveRoom(s *sandbox) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.memoryLocked(1); err != nil {
		return err
	}
	s.SetWaking(true)
	return nil
}

// wakeFromFiles makes a new instance for a stopped sandbox, and restores its files.
func (e *lifecycle) wakeFromFiles(ctx context.Context, s *sandbox, d driver.Driver) error {
	if e.saved.HasMemory(s.Key()) {
		return e.wakeFromSavedFiles(ctx, s, d)
	}
	fill := func(a *wire.Client) error { return saved.Unpack(ctx, a, s.Sandbox().Image, e.saved.Archive(s.Key())) }
	if err := e.open(ctx, s, startPlan{Plan: instance.Plan{Create: d.Create, Fill: fill}}); err != nil {
		return err
	}
	if err := e.saved.RemoveArchive(s.Key()); err != nil {
		e.log.Error("remove the files of a woken sandbox", "sandbox", s.ID(), "err", err)
	}
	return nil
}

// due ends a sandbox whose lifetime is over, or puts an idle one to sleep.
func (e *lifecycle) due(s *sandbox) {
	if err := s.Lock(e.ctx); err != nil {
		return
	}
	defer s.Unlock()
	now, onIdle := time.Now(), s.Record().Sandbox.OnIdle
	var err error
	switch due := s.Due(now); {
	case s.Gone():
		return
	case due == box.Expired:
		err = e.saveAndDestroy(e.ctx, s, "its lifetime ended")
	case due == box.Idle && onIdle == hutch.IdleDestroy:
		err = e.saveAndDestroy(e.ctx, s, "idle")
	case due == box.Idle:
		err = e.sleep(s, onIdle)
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		e.log.Error("idle or expired", "sandbox", s.ID(), "err", err)
	}
	s.Rearm(now, err != nil)
}

// sleep puts an idle sandbox to sleep. It hibernates if how says so and the runtime can save memory; otherwise its
// files are kept. A sandbox that should hibernate on a runtime that cannot save memory continues to run as long as it
// has background processes, so that nothing is lost. The caller holds the lifecycle lock.
func (e *lifecycle) sleep(s *sandbox, how hutch.IdleAction) error {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	inst, agent, since := s.BeginSleep(cancel)
	if expires := s.Record().Sandbox.ExpiresAt; expires != nil { // expired files need not be kept
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, *expires)
		defer stop()
	}
	if err := e.saveVolumes(ctx, s, agent); err != nil {
		return err
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
	if err := e.endProcesses(agent, live); err != nil {
		return err
	}
	return e.stop(ctx, s, inst, agent, since)
}

// stop saves the files of an idle sandbox, and frees its instance.
func (e *lifecycle) stop(ctx context.Context, s *sandbox, inst driver.Instance, agent *wire.Client, since time.Time) error {
	v := s.Record()
	err := e.saved.WriteArchive(v.Key, saved.Most(v.Sandbox.Limits), func(w io.Writer) error { return saved.Pack(ctx, agent, v.Sandbox.Image, w) })
	if err != nil {
		return err
	}
	e.account(ctx, s, inst)
	if !s.Detach(nil, since) {
		return e.saved.RemoveArchive(v.Key) // it was used meanwhile, so the saved files are outdated
	}
	if err := s.CommitSleep(e.ctx, hutch.Stopped, "idle: files are kept, processes have ended"); err != nil {
		e.attach(s, inst, agent)
		return errors.Join(err, e.saved.RemoveArchive(v.Key))
	}
	agent.Close()
	e.log.Info("stopped", "sandbox", s.ID())
	e.happened(ctx, s, "Stopped", "idle: files are kept, processes have ended")
	return instance.Destroy(inst)
}

// askToEnd is SIGTERM, which asks a process to end unless it has a stop signal of its own.
const askToEnd = 15

// endProcesses ends background processes: it asks them first, then kills them. A process with a stop signal of its own
// has work to do at its end, and gets as long as Docker gives it: 10 s.
func (e *lifecycle) endProcesses(agent *wire.Client, live []wire.Process) error {
	grace := 3 * time.Second
	if slices.ContainsFunc(live, func(p wire.Process) bool { return p.StopSignal != 0 }) {
		grace = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(e.ctx, grace)
	defer cancel()
	for _, p := range live {
		agent.Signal(ctx, p.ID, cmp.Or(p.StopSignal, askToEnd))
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

// outOfMemory is the reason of a sandbox whose whole instance was killed.
const outOfMemory = "it reached its memory limit and was killed"

// watch waits for an instance to die, and then closes its network.
func (e *lifecycle) watch(s *sandbox, inst driver.Instance) {
	defer e.networks.connect(s, inst)()
	e.background(func() { e.guard(s, inst) })
	select {
	case <-inst.Done():
	case <-e.ctx.Done():
		return
	}
	e.died(s, inst)
}

// died marks a sandbox whose instance has died, unless the engine ended it.
func (e *lifecycle) died(s *sandbox, inst driver.Instance) {
	if !s.RunsIn(inst) {
		return
	}
	reason := "its first process died"
	if u, err := inst.Usage(e.ctx); err == nil && u.OOMKills > 0 {
		reason = outOfMemory
	}
	if s.Lock(e.ctx) != nil {
		return
	}
	defer s.Unlock()
	e.fail(s, inst, reason)
}

// fail marks a sandbox as failed, and frees its instance. The caller holds the
// lifecycle lock.
func (e *lifecycle) fail(s *sandbox, inst driver.Instance, reason string) {
	if !s.RunsIn(inst) {
		return
	}
	e.account(e.ctx, s, inst) // some instances report their usage even when they are dead
	agent, ok := s.Fail(inst, reason)
	if !ok {
		return
	}
	agent.Close()
	e.log.Warn("failed", "sandbox", s.ID(), "reason", reason)
	e.happened(e.ctx, s, "Failed", reason)
	if err := errors.Join(s.Save(e.ctx), instance.Destroy(inst)); err != nil {
		e.log.Error("failed sandbox", "sandbox", s.ID(), "err", err)
	}
}

// Destroy implements hutch.Service.
func (e *Engine) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	s, err := e.find(ctx, id)
	if errors.Is(err, hutch.NotFound) {
		return destruction(id), nil
	}
	if err != nil {
		return hutch.Destruction{}, err
	}
	s.CancelSleep()
	if err := s.Lock(ctx); err != nil {
		return hutch.Destruction{}, err
	}
	defer s.Unlock()
	if !force {
		if err := e.refuseLive(ctx, s); err != nil {
			return hutch.Destruction{}, err
		}
	}
	if force {
		err = e.saveAndDestroy(ctx, s, "asked for")
	} else if err = e.lastSave(ctx, s); err != nil {
		err = hutch.Errorf(hutch.KindOf(err), "the sandbox %q was not destroyed: %s. Fix that, or destroy with force, which loses what is not saved", id, hutch.AsError(err).Message).Because(err)
	} else {
		err = e.destroy(ctx, s, "asked for")
	}
	if err != nil {
		return hutch.Destruction{}, err
	}
	return destruction(id), nil
}

// saveAndDestroy destroys a sandbox, also one whose volumes cannot be saved. The caller holds the lifecycle lock.
func (e *lifecycle) saveAndDestroy(ctx context.Context, s *sandbox, why string) error {
	if err := e.lastSaveByForce(ctx, s); err != nil {
		e.log.Error("a sandbox is destroyed with files of a volume that could not be saved", "sandbox", s.ID(), "why", why, "err", err)
	}
	return e.destroy(ctx, s, why)
}

func destruction(id string) hutch.Destruction {
	return hutch.Destruction{ID: id, Status: hutch.Destroyed, ResourcesReleased: true, DestroyedAt: time.Now().UTC()}
}

// refuseLive is the error for a sandbox with live background processes.
func (e *lifecycle) refuseLive(ctx context.Context, s *sandbox) error {
	agent := s.BeginUse()
	if agent == nil {
		return nil
	}
	defer s.EndUse()
	live, err := liveProcesses(ctx, agent)
	if err != nil || len(live) == 0 {
		return nil // an agent that does not answer does not prevent a destroy
	}
	return hutch.Errorf(hutch.Conflict, "the sandbox %q has running background processes (%s): end them first, or destroy with force", s.ID(), namesOf(live))
}

// destroy frees all resources of the sandbox. The caller holds the lifecycle lock.
func (e *lifecycle) destroy(ctx context.Context, s *sandbox, why string) error {
	if s.Gone() {
		return nil
	}
	if inst, agent := s.Held(); inst != nil {
		e.account(ctx, s, inst)
		s.ReleaseInstance()
		if err := instance.Destroy(inst); err != nil {
			s.TakeBackInstance(inst)
			return fmt.Errorf("destroy sandbox %s: %w", s.ID(), err)
		}
		agent.Close()
	}
	ports := s.Record().Ports
	for _, x := range ports {
		e.exposed.Reserve(s.Owner(), x)
	}
	if err := e.forget(context.WithoutCancel(ctx), s, why); err != nil {
		return err
	}
	e.exposed.Remove(ports)
	s.Disconnect()
	e.removeUsage(s)
	e.log.Info("destroyed", "sandbox", s.ID(), "why", why)
	e.happened(ctx, s, "Destroyed", why)
	return nil
}

// forget removes a sandbox from disk, but keeps its usage.
func (e *lifecycle) forget(ctx context.Context, s *sandbox, why string) error {
	if err := e.saved.Remove(s.Key()); err != nil {
		return err
	}
	return s.Destroy(why, func() error {
		if e.opt.Store == nil {
			return nil
		}
		used := s.Used()
		used.Disk = 0
		return e.opt.Store.Retire(ctx, s.Key(), s.Owner(), used)
	})
}

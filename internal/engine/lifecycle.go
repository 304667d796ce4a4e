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
	// The sandbox is being created, sleeps, or is changing its state.
	if err := s.LockToUse(ctx); err != nil {
		return nil, nil, err
	}
	agent, err = e.wakeToUse(ctx, s)
	s.Unlock()
	switch {
	case err == nil:
		return s, agent, nil
	case !errors.Is(err, errUnwoken):
		return nil, nil, err
	}
	if err := s.Lock(ctx); err != nil { // waits until the destruction has succeeded or failed
		return nil, nil, err
	}
	defer s.Unlock()
	if s.Gone() {
		return nil, nil, notFound(id)
	}
	return nil, nil, hutch.Errorf(hutch.Conflict, "the sandbox %q was not woken, because another call was about to destroy it: try again in a moment", id).Naming(hutch.AboutSandbox, id)
}

// errUnwoken is the error of a wake that ended because another caller destroys the sandbox.
var errUnwoken = errors.New("the sandbox is about to be destroyed")

// wakeToUse wakes the sandbox and counts a use of it. The caller holds the lifecycle lock. If another caller is about
// to destroy the sandbox with force, the error is errUnwoken.
func (e *lifecycle) wakeToUse(ctx context.Context, s *sandbox) (*wire.Client, error) {
	waking, stop := untilEnd(ctx, s, errUnwoken)
	defer stop()
	if err := e.wake(waking, s); err != nil {
		if ctx.Err() == nil && waking.Err() != nil {
			err = context.Cause(waking)
		}
		return nil, err
	}
	return s.BeginUse(), nil
}

// untilEnd returns a context for work with the lifecycle lock. When another caller destroys the sandbox with force, the
// context ends with the cause. The caller calls stop after its work.
func untilEnd(ctx context.Context, s *sandbox, cause error) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.GiveWayToEnd(func() { cancel(cause) })
	return ctx, func() {
		s.GiveWayToEnd(nil)
		cancel(nil)
	}
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
		if err := s.checkLoss(); err != nil {
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
	if err := s.markEnvSent(ctx); err != nil { // after an error, the next wake sends them again
		e.log.Error("write that a sandbox knows its variables", "sandbox", s.ID(), "err", err)
	}
	return nil
}

// checkLoss returns an error the first time a lost sandbox is about to wake, so that no caller mistakes the empty
// sandbox for the old one.
func (s *sandbox) checkLoss() error {
	if told, reason := s.ReportLoss(); !told {
		return hutch.Errorf(hutch.Conflict, "the sandbox %q is lost, with its files: %s. The next use starts it empty; or destroy it and create it from a snapshot", s.ID(), reason).Naming(hutch.AboutSandbox, s.ID())
	}
	return nil
}

// startEmpty starts a lost sandbox without files.
func (e *lifecycle) startEmpty(ctx context.Context, s *sandbox, d driver.Driver) error {
	reason := s.Record().Sandbox.Reason
	why := "started empty: " + strings.TrimPrefix(reason, "started empty: ")
	return e.open(ctx, s, startPlan{Plan: instance.Plan{Create: d.Create}, reason: &why, volumes: true})
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
	if err := e.lockDue(s); err != nil {
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

// lockDue waits for the lifecycle lock of a sandbox that has reached a deadline. After the end of the lifetime, no work
// of callers delays it.
func (e *lifecycle) lockDue(s *sandbox) error {
	for {
		end := s.Record().Sandbox.ExpiresAt
		switch {
		case end == nil:
			return s.Lock(e.ctx)
		case !time.Now().Before(*end):
			return s.LockToEnd(e.ctx)
		}
		ctx, stop := context.WithDeadline(e.ctx, *end)
		err := s.Lock(ctx)
		stop()
		if err == nil || e.ctx.Err() != nil {
			return err
		}
	}
}

// sleep puts an idle sandbox to sleep. The sandbox hibernates if how says so and the runtime can save memory;
// otherwise its files are kept. A sandbox that should hibernate on a runtime that cannot save memory continues to run
// as long as it has background processes, so that nothing is lost. The caller holds the lifecycle lock.
func (e *lifecycle) sleep(s *sandbox, how hutch.IdleAction) error {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	inst, agent, since := s.BeginSleep(cancel)
	if expires := s.Record().Sandbox.ExpiresAt; expires != nil { // expired files need not be kept
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, *expires)
		defer stop()
	}
	if err := e.volumes.save(ctx, s, agent); err != nil {
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
	s.account(ctx, inst)
	e.noteEnds(ctx, s, agent) // also the processes that endProcesses has just ended
	if !s.Detach(nil, since) {
		return e.saved.RemoveArchive(v.Key) // the sandbox was used meanwhile, so the saved files are outdated
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

// endProcesses ends background processes: it asks them to end, and then kills them. A process with a stop signal of its
// own has work to do at its end, and has 10 s for it, as in Docker.
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

// died marks a sandbox as failed when its instance has died, unless the engine ended the instance.
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
	s.account(e.ctx, inst) // some instances report their usage even when they are dead
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
	if err := lockToDestroy(ctx, s, force); err != nil {
		return hutch.Destruction{}, err
	}
	defer s.Unlock()
	if !force {
		if err := s.refuseLive(ctx); err != nil {
			return hutch.Destruction{}, err
		}
	}
	if force {
		err = e.saveAndDestroy(ctx, s, "asked for")
	} else if err = e.volumes.lastSaveUnforced(ctx, s); err != nil {
		err = hutch.Errorf(hutch.KindOf(err), "the sandbox %q was not destroyed: %s. Fix that, or destroy with force, which loses what is not saved", id, hutch.AsError(err).Message).Because(err)
	} else {
		err = e.destroy(ctx, s, "asked for")
	}
	if err != nil {
		return hutch.Destruction{}, err
	}
	return destruction(id), nil
}

// lockToDestroy takes the lifecycle lock. It cancels a sleep in progress, because that sleep would be wasted. With
// force, it does not wait for the work of other callers.
func lockToDestroy(ctx context.Context, s *sandbox, force bool) error {
	if force {
		return s.LockToEnd(ctx)
	}
	s.CancelSleep()
	return s.Lock(ctx)
}

// saveAndDestroy saves the volumes of a sandbox and destroys it, even if they cannot be saved. The caller holds the
// lifecycle lock.
func (e *lifecycle) saveAndDestroy(ctx context.Context, s *sandbox, why string) error {
	if err := e.volumes.lastSaveByForce(ctx, s); err != nil {
		e.log.Error("a sandbox is destroyed with files of a volume that could not be saved", "sandbox", s.ID(), "why", why, "err", err)
	}
	return e.destroy(ctx, s, why)
}

func destruction(id string) hutch.Destruction {
	return hutch.Destruction{ID: id, Status: hutch.Destroyed, ResourcesReleased: true, DestroyedAt: time.Now().UTC()}
}

// refuseLive returns the error for a sandbox with live background processes.
func (s *sandbox) refuseLive(ctx context.Context) error {
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
		s.account(ctx, inst)
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
	e.table.retire(s)
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

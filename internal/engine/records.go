package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// lookTime limits how long a record waits for data from inside the sandbox.
const lookTime = 2 * time.Second

// Sandbox implements hutch.Service.
func (e *Engine) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	s, err := e.find(ctx, id)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	return e.look(ctx, s), nil
}

// Sandboxes implements hutch.Service.
func (e *Engine) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	all := e.visible(ctx, f.ID)
	left := func(v hutch.Sandbox) bool { return !f.Match(v) }
	if f.Brief {
		return slices.DeleteFunc(recordsOf(all), left), nil
	}
	list := make([]hutch.Sandbox, len(all))
	visit(all, func(i int, s *sandbox) { list[i] = e.look(ctx, s) })
	return slices.DeleteFunc(list, left), nil
}

// recordsOf returns the records of sandboxes.
func recordsOf(all []*sandbox) []hutch.Sandbox {
	list := make([]hutch.Sandbox, len(all))
	for i, s := range all {
		list[i] = s.Sandbox()
	}
	return list
}

// visit calls do for several sandboxes at once. Sandboxes that do not answer do not delay the others.
func visit[T any](all []T, do func(i int, one T)) {
	var round sync.WaitGroup
	slots := make(slots, 16)
	for i, s := range all {
		end := slots.take(slowVisit)
		round.Go(func() {
			defer end()
			do(i, s)
		})
	}
	round.Wait()
}

// slowVisit is the longest time of a visit that does not wait for an agent.
const slowVisit = 250 * time.Millisecond

// slots limit how many tasks work at once. A slow task does not count, because it only waits for a sandbox, which can
// be hostile.
type slots chan struct{}

// take waits for a slot. The caller calls end after its task.
func (s slots) take(slow time.Duration) (end func()) {
	s <- struct{}{}
	free := sync.OnceFunc(func() { <-s })
	late := time.AfterFunc(slow, free)
	return func() {
		late.Stop()
		free()
	}
}

// look returns the record of a sandbox, with data from its instance and its agent.
func (e *lifecycle) look(ctx context.Context, s *sandbox) hutch.Sandbox {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	v, inst, agent := s.Look()
	if agent == nil {
		inst = s.Instance() // a paused sandbox has an instance that can still be measured
	}
	if inst == nil {
		return v
	}
	if now := s.measured.Load(); now != nil {
		v.Processes, v.Resources = slices.Clone(now.processes), now.resources
		return v
	}
	if u, err := s.account(ctx, inst); err == nil {
		v.Resources = s.Resources(u)
	}
	if agent == nil {
		return v
	}
	switch ps, err := e.listProcesses(ctx, s, agent); {
	case err == nil:
		v.Processes = ps
	case !errors.Is(err, hutch.Exhausted):
		v.Health = hutch.Unhealthy
	}
	return v
}

// Process implements hutch.Service.
func (c commands) Process(ctx context.Context, id, process string) (hutch.Process, error) {
	all, err := c.Processes(ctx, id)
	if err != nil {
		return hutch.Process{}, err
	}
	for _, p := range all {
		if p.ID == process {
			return p, nil
		}
	}
	return hutch.Process{}, hutch.Errorf(hutch.NotFound, "there is no process %.80q in the sandbox %q: list its processes", process, id).Naming(hutch.AboutSandbox, id)
}

// Processes implements hutch.Service.
func (c commands) Processes(ctx context.Context, id string) ([]hutch.Process, error) {
	return entries(ctx, c.life, id, func(b *store.Listing) []hutch.Process { return b.Processes }, c.life.listProcesses)
}

// entries returns a sandbox's list of processes or contexts without waking the sandbox: from its agent, or as the list
// was saved when the sandbox was detached.
func entries[T any](ctx context.Context, e *lifecycle, id string, asleep func(*store.Listing) []T,
	awake func(context.Context, *sandbox, *wire.Client) ([]T, error)) ([]T, error) {
	s, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	agent, saved := s.Listing()
	switch {
	case saved != nil:
		return slices.Clone(asleep(saved)), nil
	case agent == nil:
		return []T{}, nil
	}
	return awake(ctx, s, agent)
}

// listProcesses lists the background processes of a sandbox that is awake, and reports ended processes to the timeline
// of the sandbox.
func (e *lifecycle) listProcesses(ctx context.Context, s *sandbox, agent *wire.Client) ([]hutch.Process, error) {
	all, err := agent.List(ctx)
	if err != nil {
		return nil, err
	}
	ended := lastEnded(all)
	ps, err := processes(ctx, s.ID(), all)
	e.noteEnded(s, ended)
	return ps, err
}

func processes(ctx context.Context, id string, all []wire.Process) ([]hutch.Process, error) {
	if cost := costOf(all); cost > smallList && !caller.From(ctx).Budget.Take(cost) {
		return nil, hutch.Errorf(hutch.Exhausted, "the list of processes of the sandbox %q, and other answers of this token that are under way, take more memory than it may have: wait for some, or ask for less at a time", id).
			With("limit", "memory of answers").With("retryAfter", 1)
	}
	ps := make([]hutch.Process, len(all))
	for i, p := range all {
		ps[i] = process(id, p)
	}
	return ps, nil
}

// smallList is the size of a process list, in bytes, up to which it does not count as memory of the caller.
const smallList = 128 << 10

// costOf returns the memory that processes take, in bytes. An agent chooses their number and texts.
func costOf(all []wire.Process) int {
	const record = 600 // of wire.Process and hutch.Process
	cost := record * len(all)
	for _, p := range all {
		cost += len(p.ID) + len(p.Name) + len(p.Command)
		if p.Health != nil {
			cost += len(p.Health.Output)
		}
	}
	return cost
}

// process returns the agent's record of a process as callers see it. The agent is not trusted: texts are made valid and
// cut to a maximum length, and numbers are brought into range.
func process(id string, p wire.Process) hutch.Process {
	v := hutch.Process{
		ID: clean(p.ID, hutch.MaxID), SandboxID: id, Name: clean(p.Name, hutch.MaxID), Command: clean(p.Command, 4096),
		Status: p.Status, PID: max(p.PID, 0), StartTime: time.UnixMilli(p.StartMS).UTC(),
		RestartPolicy: p.Restart, Restarts: max(p.Restarts, 0), Signal: p.Signal,
	}
	switch p.Status {
	case hutch.ProcessStarting, hutch.ProcessRunning, hutch.ProcessExited, hutch.ProcessFailed:
	default:
		v.Status = hutch.ProcessFailed
	}
	switch p.Restart {
	case hutch.RestartAlways, hutch.RestartOnFailure:
	default:
		v.RestartPolicy = hutch.RestartNever
	}
	if p.Terminal != nil && p.Terminal.Check() == nil {
		v.Terminal = p.Terminal
	}
	v.StopSignal, v.Health = p.StopSignal, health(p.Health)
	if p.ExitCode != nil {
		code := *p.ExitCode & 0xff
		v.ExitCode = &code
	}
	if p.EndMS > 0 {
		end := time.UnixMilli(p.EndMS).UTC()
		v.EndTime = &end
	}
	const lastYear = 9999 // the last year that JSON times support
	if v.StartTime.Year() > lastYear || v.EndTime != nil && v.EndTime.Year() > lastYear {
		v.StartTime, v.EndTime = time.Time{}, nil
	}
	return v
}

// health returns the agent's report about the health of a process.
func health(h *wire.Health) *hutch.ProcessHealth {
	if h == nil {
		return nil
	}
	v := &hutch.ProcessHealth{Status: h.Status, Failures: max(h.Failures, 0), Output: clean(h.Output, hutch.MaxHealthOutput)}
	switch v.Status {
	case hutch.HealthStarting, hutch.HealthGood, hutch.HealthUnhealthy:
	default:
		v.Status = hutch.HealthUnhealthy
	}
	if h.ExitCode != nil {
		code := *h.ExitCode & 0xff
		v.ExitCode = &code
	}
	if h.CheckedMS > 0 {
		at := time.UnixMilli(h.CheckedMS).UTC()
		v.CheckedAt = &at
	}
	return v
}

func clean(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// watchHealth pings every running sandbox at intervals. A sandbox that does not answer is only marked as unhealthy:
// this machine can be busy, or the sandbox briefly frozen. It fails when its instance dies (see watch).
func (e *Engine) watchHealth() {
	every(e.ctx, e.opt.HealthEvery, func() {
		visit(e.table.oldestFirst(), func(_ int, s *sandbox) { e.examine(s) })
		e.saveLedger(e.ctx)
		if err := e.ledger.Sweep(e.ctx); err != nil && e.ctx.Err() == nil {
			e.log.Error("remove the use of expired days", "err", err)
		}
		e.expireSnapshots()
	})
}

// every calls do at intervals, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		do()
	}
}

func (e *lifecycle) examine(s *sandbox) {
	inst, agent := s.Attached()
	if agent == nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.opt.HealthEvery)
	defer cancel()
	_, err := agent.Ping(ctx)
	if e.ctx.Err() != nil {
		return
	}
	health := hutch.Healthy
	if err != nil {
		health = hutch.Unhealthy
	}
	before, ok := s.NoteHealth(agent, health)
	if !ok { // a sandbox that was paused meanwhile does not answer
		return
	}
	s.account(ctx, inst)
	if s.Unsaved() {
		if err := s.Save(ctx); err != nil {
			e.log.Error("save what a sandbox used", "sandbox", s.ID(), "err", err)
		}
	}
	switch {
	case err == nil && before == hutch.Unhealthy:
		e.log.Info("answers again", "sandbox", s.ID())
	case err != nil && before != hutch.Unhealthy:
		e.log.Warn("does not answer", "sandbox", s.ID(), "err", err)
	}
	if err == nil {
		e.noteEnds(ctx, s, agent)
	}
}

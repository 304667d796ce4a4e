package coding

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"

	"hutch"
	"hutch/internal/compat"
)

const (
	// LabelTries is the label of sessions that are tries of one prompt; its value finds them again.
	LabelTries = "hutch.agent.tries"
	labelTry   = "hutch.agent.try" // the number of a try, from 1
)

// Tries are sessions that start as copies of one session, and whose agents all get the same prompt. Only the sandboxes
// and their labels are kept.
type Tries struct {
	ID   string
	list []try
}

// try is one session of [Tries]. err is why its agent cannot be followed.
type try struct {
	number  int
	session *Session
	process string
	err     error
}

// Try opens a session, copies it, and gives the task to count agents. The first of them works in the session that was opened, so
// there are as many sandboxes as agents. If it fails, nothing is left.
func Try(ctx context.Context, svc Service, task Task, count int) (_ *Tries, err error) {
	t := &Tries{ID: hutch.NewID("tries")}
	labels := func(number int) map[string]string {
		return map[string]string{Label: task.Agent.Name, LabelTries: t.ID, labelTry: strconv.Itoa(number)}
	}
	task.Sandbox.Labels = labels(1)
	first, err := Open(ctx, svc, task.Agent, task.Sandbox, task.Repository)
	if err != nil {
		return nil, err
	}
	all := []*Session{first}
	defer func() {
		if err != nil {
			destroyAll(ctx, all)
		}
	}()
	if count > 1 {
		copies, err := first.fork(ctx, count-1, func(i int) map[string]string { return labels(i + 2) })
		if err != nil {
			return nil, err
		}
		all = append(all, copies...)
	}
	for i, s := range all {
		process, err := s.Start(ctx, task.Prompt, task.Timeout)
		if err != nil {
			return nil, err
		}
		t.list = append(t.list, try{number: i + 1, session: s, process: process})
	}
	return t, nil
}

// destroyAll removes sessions, even if their caller has disconnected or has reached a limit.
func destroyAll(ctx context.Context, list []*Session) {
	var wg sync.WaitGroup
	for _, s := range list {
		wg.Go(func() { s.destroy(ctx) })
	}
	wg.Wait()
}

// findTries returns the tries that still exist, sorted by number.
func findTries(ctx context.Context, svc hutch.Service, id string, d Definition) (*Tries, error) {
	if err := hutch.CheckID(id); err != nil {
		return nil, err
	}
	found, err := svc.Sandboxes(ctx, hutch.Filter{Labels: map[string]string{LabelTries: id}, Brief: true})
	if err != nil {
		return nil, err
	}
	t := &Tries{ID: id}
	for _, sb := range found {
		number, err := strconv.Atoi(sb.Labels[labelTry])
		if err != nil || number < 1 || number > hutch.MaxTries {
			continue // the owner has changed the label
		}
		s, err := Find(ctx, svc, sb.ID, d)
		if hutch.KindOf(err) == hutch.NotFound {
			continue // the session has ended since, or its owner has removed its label
		}
		if err != nil {
			return nil, err
		}
		last, err := s.Last(ctx)
		t.list = append(t.list, try{number, s, last.ID, err})
	}
	if len(t.list) == 0 {
		return nil, hutch.Errorf(hutch.NotFound, "there are no tries %.80q: their sessions have ended, or were destroyed", id)
	}
	slices.SortStableFunc(t.list, func(a, b try) int { return cmp.Compare(a.number, b.number) })
	return t, nil
}

// Begun returns the answer before any agent has ended.
func (t *Tries) Begun() hutch.AgentTries {
	all := hutch.AgentTries{ID: t.ID}
	for _, x := range t.list {
		all.Tries = append(all.Tries, hutch.AgentTry{Try: x.number, Result: hutch.AgentResult{SandboxID: x.session.ID, Agent: x.session.definition.Name}})
	}
	return all
}

// Follow passes on what the agents do, from the beginning, until all have ended. It returns the result of each. The
// agents continue if ctx ends or show fails; show is called by several goroutines.
func (t *Tries) Follow(ctx context.Context, show func(Event) error) (hutch.AgentTries, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := t.Begun()
	var wg sync.WaitGroup
	for i, x := range t.list {
		wg.Go(func() {
			res, err := x.follow(ctx, show, cancel)
			if err == nil {
				all.Tries[i].Result = res
				return
			}
			e := hutch.AsError(err)
			all.Tries[i].Kind, all.Tries[i].Error = e.Kind, e.Message
		})
	}
	wg.Wait()
	return all, context.Cause(ctx)
}

// Stop ends the agents, even if their caller has disconnected.
func (t *Tries) Stop(ctx context.Context) {
	ctx, cancel := compat.Cleanup(ctx)
	defer cancel()
	for _, x := range t.list {
		x.session.svc.Signal(ctx, x.session.ID, x.process, 15)
	}
}

func (x try) follow(ctx context.Context, show func(Event) error, cancel context.CancelCauseFunc) (hutch.AgentResult, error) {
	if x.err != nil {
		return hutch.AgentResult{}, x.err
	}
	var pass func(Event) error
	if show != nil {
		pass = func(e Event) error {
			e.Try = x.number
			err := show(e)
			if err != nil {
				cancel(err) // ends the other tries, too: they have the same reader
			}
			return err
		}
	}
	return x.session.Follow(ctx, x.process, pass)
}

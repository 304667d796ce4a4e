package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"hutch"
)

// Watcher gets the events of a run. Its functions are called by several goroutines, and can be nil.
type Watcher struct {
	// Say gets an event of a step.
	Say func(step, text string)
	// Output gets the output of a step.
	Output func(step string, data []byte)
}

// Run runs the remaining steps, and returns when no step can run any more. A failed step is not an error: see the
// state. When ctx is done, the sandboxes of running steps are destroyed, and the run can be resumed; these steps then
// run again. If the process is killed instead, the steps keep running, and a resumed run follows them.
func (r *Run) Run(ctx context.Context, svc hutch.Service, watch Watcher) error {
	if r.resumed {
		r.sweep(ctx, svc)
	}
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(r.flow.Timeout), errFlowTime)
	defer cancel()
	broken, stop := context.WithCancelCause(limited)
	defer stop(nil)
	e := &execution{Run: r, svc: svc, watch: watch, places: make(chan struct{}, r.flow.Parallel), finished: map[string]chan struct{}{}}
	for _, step := range r.flow.Steps {
		e.finished[step.Name] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i := range r.flow.Steps {
		wg.Go(func() {
			step := &r.flow.Steps[i]
			defer close(e.finished[step.Name])
			if err := e.perform(broken, step); err != nil {
				stop(err) // the state cannot be recorded
			}
		})
	}
	wg.Wait()
	if err := context.Cause(broken); err != nil && !errors.Is(err, errFlowTime) {
		return err
	}
	return r.conclude()
}

var errFlowTime = errors.New("the time limit of the workflow ran out")

// conclude records how the run ended.
func (r *Run) conclude() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Status, r.state.Ended = Done, time.Now().UTC()
	for _, step := range r.state.Steps {
		if step.Status != Done {
			r.state.Status = Failed
		}
		if step.Status == Failed && r.state.Problem == "" {
			r.state.Problem = fmt.Sprintf("step %s: %s", step.Name, step.Problem)
		}
	}
	return r.saveLocked()
}

// execution is a run while it runs.
type execution struct {
	*Run
	svc      hutch.Service
	watch    Watcher
	places   chan struct{} // one for each step that runs
	finished map[string]chan struct{}
}

func (e *execution) say(step, format string, args ...any) {
	if e.watch.Say != nil {
		e.watch.Say(step, fmt.Sprintf(format, args...))
	}
}

// perform waits for the steps that a step needs, and runs the step until it is done or has failed too often. It returns
// an error only if the state cannot be recorded on the disk, or if ctx is done.
func (e *execution) perform(ctx context.Context, step *Step) error {
	record, err := e.record(step.Name, func(*Record) {})
	if err != nil || record.Status == Done {
		return err
	}
	if missing, err := e.await(ctx, step); err != nil || missing != "" {
		return e.skip(ctx, step, missing, err)
	}
	select {
	case e.places <- struct{}{}:
		defer func() { <-e.places }()
	case <-ctx.Done():
		return e.skip(ctx, step, "", context.Cause(ctx))
	}
	for {
		again, err := e.attempt(ctx, step)
		if err != nil || !again {
			return err
		}
	}
}

// await waits for the steps that a step needs. It returns the name of the first of them that did not become done.
func (e *execution) await(ctx context.Context, step *Step) (missing string, err error) {
	for _, need := range step.Needs {
		select {
		case <-e.finished[need]:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		record, err := e.record(need, func(*Record) {})
		if err != nil {
			return "", err
		}
		if record.Status != Done {
			return need, nil
		}
	}
	return "", nil
}

// skip records that a step did not run, unless the run was interrupted.
func (e *execution) skip(ctx context.Context, step *Step, missing string, err error) error {
	problem := missing + " is not done"
	if cause := context.Cause(ctx); errors.Is(cause, errFlowTime) {
		problem = cause.Error()
	} else if cause != nil || err != nil {
		return errors.Join(cause, err)
	}
	e.say(step.Name, "skipped: %s", problem)
	_, err = e.record(step.Name, func(s *Record) { s.Status, s.Problem = Skipped, problem })
	return err
}

// attempt runs a step once, or follows the attempt that an earlier runner began. It reports whether to try again.
func (e *execution) attempt(ctx context.Context, step *Step) (again bool, err error) {
	var soonest time.Time // end of the attempt
	record, err := e.record(step.Name, func(s *Record) {
		if s.Status != Running {
			s.Status, s.Started = Running, time.Now().UTC()
			s.Attempt++
		} else {
			soonest = time.Now().Add(graceTime)
		}
	})
	if err != nil {
		return false, err
	}
	limit := fmt.Errorf("killed at its time limit of %v", time.Duration(step.Timeout))
	end := record.Started.Add(time.Duration(step.Timeout))
	if end.Before(soonest) {
		end = soonest
	}
	timed, cancel := context.WithDeadlineCause(ctx, end, limit)
	defer cancel()
	a := &attempt{execution: e, step: step, record: record, sandbox: sandboxID(e.state.ID, step.Name, record.Attempt)}
	defer a.destroy(ctx) // after the result is recorded: a runner that dies in between leaves a sandbox, and no step runs twice
	code, failure := a.run(timed)
	switch cause := context.Cause(timed); {
	case failure == nil:
	case errors.Is(cause, limit):
		failure = limit
	case errors.Is(cause, errFlowTime):
		failure = errFlowTime
	case cause != nil: // interrupted: the attempt does not count
		_, err := e.record(step.Name, func(s *Record) { s.Status = Waiting })
		return false, errors.Join(cause, err)
	}
	return e.ended(step, code, failure)
}

// ended records how an attempt ended.
func (e *execution) ended(step *Step, code *int, failure error) (again bool, err error) {
	record, err := e.record(step.Name, func(s *Record) {
		s.Ended, s.ExitCode, s.Status, s.Problem = time.Now().UTC(), code, Done, ""
		if failure == nil {
			return
		}
		s.Failures++
		s.Status, s.Problem = Failed, failure.Error()
		if again = s.Failures <= step.Retries && failure != errFlowTime; again {
			s.Status = Waiting
		}
	})
	took := record.Ended.Sub(record.Started).Round(100 * time.Millisecond)
	switch {
	case failure == nil:
		e.say(step.Name, "done in %v", took)
	case again:
		e.say(step.Name, "failed: %v; trying again, %d of %d", failure, record.Failures, step.Retries)
	default:
		e.say(step.Name, "failed after %v: %v", took, failure)
	}
	return again, err
}

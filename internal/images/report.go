package images

import (
	"context"
	"errors"
	"sync"

	"hutch"
	"hutch/internal/oci"
)

// report passes progress on to a caller that can be slow: the store must not wait, so a newer state of a layer
// replaces one that was not passed on yet.
type report struct {
	out    func(hutch.Transfer) error
	cancel context.CancelCauseFunc
	wake   chan struct{}
	gone   chan struct{} // closed when nothing more will be passed on

	mu     sync.Mutex
	order  []string // layers with states that were not passed on yet, oldest first
	latest map[string]hutch.Transfer
	ended  bool
	err    error // the caller's error
}

// reporting returns a report, and a context that is done when out fails.
func reporting(ctx context.Context, out func(hutch.Transfer) error) (*report, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &report{out: out, cancel: cancel, wake: make(chan struct{}, 1), gone: make(chan struct{}), latest: map[string]hutch.Transfer{}}
	if out == nil {
		close(r.gone)
	} else {
		go r.run()
	}
	return r, ctx
}

// take records the state of a layer.
func (r *report) take(p oci.Progress) {
	if r.out == nil {
		return
	}
	r.mu.Lock()
	if _, waits := r.latest[p.Layer]; !waits {
		r.order = append(r.order, p.Layer)
	}
	r.latest[p.Layer] = hutch.Transfer{Layer: p.Layer, Done: p.Done, Total: p.Total, State: p.State}
	r.mu.Unlock()
	r.wakeUp()
}

func (r *report) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *report) run() {
	defer close(r.gone)
	for {
		t, some, ended := r.next()
		switch {
		case some:
			if err := r.out(t); err != nil {
				r.fail(err)
				return
			}
		case ended:
			return
		default:
			<-r.wake
		}
	}
}

func (r *report) next() (t hutch.Transfer, some, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) == 0 {
		return t, false, r.ended
	}
	t = r.latest[r.order[0]]
	delete(r.latest, r.order[0])
	r.order = r.order[1:]
	return t, true, false
}

func (r *report) fail(err error) {
	r.mu.Lock()
	r.err = err
	r.mu.Unlock()
	r.cancel(err)
}

// end passes on waiting reports, and returns when out is not called any more.
func (r *report) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.wakeUp()
	<-r.gone
	r.cancel(nil)
}

// cause returns the error of the call: that of out, if it failed.
func (r *report) cause(err error) error {
	if err == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, err)
}

package envd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"hutch"
)

// turns queues commands that exceed a sandbox's limit of background processes. E2B's clients know no such limit and
// start as many commands as they like, so a command over the limit waits until another command has ended. Per sandbox,
// one waiting command tries again at a time and the others queue behind it, in the order in which they came.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn // by sandbox, while a call waits
}

type turn struct {
	waiting int
	full    error         // the first waiting command's error
	mine    chan struct{} // holds a value while no command is trying
}

const (
	shortestPause = 20 * time.Millisecond
	longestPause  = time.Second
	// waitForever is how long a command without a time limit waits for room: such commands rarely end.
	waitForever = 20 * time.Second
)

// start calls begin until the sandbox accepts another process, for at most the duration most. If most is 0, the command
// has no time limit, and start waits for waitForever. The argument of begin says whether begin was called before.
func (ts *turns) start(ctx context.Context, place string, most time.Duration, begin func(again bool) error) error {
	again := false
	t := ts.behind(place)
	if t == nil {
		err := begin(again)
		if !noRoom(err) {
			return err
		}
		again = true
		t = ts.join(place, err)
	}
	defer ts.leave(place, t)
	if most <= 0 {
		most = waitForever
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-ctx.Done():
		return t.full
	case <-t.mine:
	}
	defer func() { t.mine <- struct{}{} }()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		if err := begin(again); !noRoom(err) || ctx.Err() != nil {
			return err
		}
		again = true
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// noRoom reports whether err says that a sandbox has reached its limit of processes. Agents of older versions do not name
// the limit; errors about limits of the server and of tokens always do.
func noRoom(err error) bool {
	e, ok := errors.AsType[*hutch.Error](err)
	return ok && e.Kind == hutch.Exhausted && slices.Contains([]string{"", "processes", "pids"}, e.Limit())
}

// behind joins the queue of a sandbox if it has one. Otherwise it returns nil.
func (ts *turns) behind(place string) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.all[place]
	if t != nil {
		t.waiting++
	}
	return t
}

func (ts *turns) join(place string, full error) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.all[place]
	if t == nil {
		if ts.all == nil {
			ts.all = map[string]*turn{}
		}
		t = &turn{full: full, mine: make(chan struct{}, 1)}
		t.mine <- struct{}{}
		ts.all[place] = t
	}
	t.waiting++
	return t
}

func (ts *turns) leave(place string, t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		delete(ts.all, place)
	}
}

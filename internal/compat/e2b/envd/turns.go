package envd

import (
	"context"
	"errors"
	"sync"
	"time"

	"hutch"
)

// A sandbox has a limit of background processes, and E2B's clients know none: they start as many commands as they like.
// So a command that finds no room waits until another one has ended. One command of a sandbox asks again at a time, and
// the others wait for it in a line, at whose end those begin that come later: nobody waits longer than who came after.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn // by sandbox, while a call waits
}

type turn struct {
	waiting int
	full    error         // what the first of them was told
	mine    chan struct{} // holds a value while nobody asks
}

const (
	shortestPause = 20 * time.Millisecond
	longestPause  = time.Second
	// waitForever is how long a command without a time limit waits for room: such commands seldom end.
	waitForever = 20 * time.Second
)

// start calls begin until it finds room for a process, at most for a time. 0 means that the command has no time limit.
// begin is told whether it was called before.
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

// noRoom reports whether err says that a sandbox has as many processes as it can. The limits of the server and of tokens
// have names in their errors; what a sandbox itself says has none.
func noRoom(err error) bool {
	e, ok := errors.AsType[*hutch.Error](err)
	return ok && e.Kind == hutch.Exhausted && e.Limit() == ""
}

// behind waits where another call waits already; nil means that no call does.
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

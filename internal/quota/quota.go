// Package quota counts the calls of each token in a window of time, and refuses calls over the limit.
//
// A window begins with its first call, and its whole limit is then available. Counts outlive the daemon, and are never
// lower after a restart: a block of calls is written to disk before the first of them is allowed. So kill -9 costs a
// token at most the rest of its block, and never gives it more calls.
//
// Servers that share their store share the windows, by the store's clock: all of them take their blocks from the same
// count. The blocks become smaller towards the limit, so a server leaves few calls unused.
package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"hutch"
	"hutch/internal/store"
)

// Options configure a meter.
type Options struct {
	// Collection is where counts are stored; nil keeps them in memory only.
	Collection *store.Collection
	// Window is the length of a window.
	Window time.Duration
	// What describes the count, such as "requests a minute".
	What string
	// Limit is the name of the limit in errors, such as "requestsPerMinute".
	Limit string
}

// Meter counts calls of one sort.
type Meter struct {
	opt Options

	mu    sync.Mutex
	byKey map[string]*window
}

// window counts the calls of one token since a time.
type window struct {
	mu    sync.Mutex
	start time.Time
	taken int // calls that all servers have taken, as far as this server knows
	left  int // calls that are left of this server's block

	asked   time.Time // when the store last answered, or failed to
	failure error     // why it failed to answer
}

func (w *window) used() int { return w.taken - w.left }

// kept is the stored form of a window.
type kept struct {
	Start time.Time `json:"start"`
	Count int       `json:"count"`
}

// Standing is the state of a token's limit after a call.
type Standing struct {
	Limit     int // math.MaxInt32 for none
	Remaining int
	Reset     time.Time // when Remaining is Limit again
}

// Open returns a meter that continues from the stored counts.
func Open(ctx context.Context, opt Options) (*Meter, error) {
	m := &Meter{opt: opt, byKey: map[string]*window{}}
	if opt.Collection == nil {
		return m, nil
	}
	docs, err := opt.Collection.All(ctx)
	if err != nil {
		return nil, err
	}
	if opt.Collection.Shared() {
		return m, nil // each window is read at its first use
	}
	for key, doc := range docs {
		var k kept
		if err := json.Unmarshal(doc, &k); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", opt.What, key, err)
		}
		now := time.Now()
		began := now.Sub(k.Start) // negative if the clock was put back meanwhile
		if began < 0 || began >= m.opt.Window {
			if err := opt.Collection.Delete(ctx, key); err != nil {
				return nil, err
			}
			continue
		}
		m.byKey[key] = &window{start: now.Add(-began), taken: k.Count}
	}
	return m, nil
}

// covers reports whether a window that began at start is current. Both times are of the monotonic clock, so setting the
// machine's time neither gives calls nor delays them.
func (m *Meter) covers(start, now time.Time) bool { return now.Sub(start) < m.opt.Window }

// Take counts one call of key against limit, or refuses it as Exhausted, with the time to wait in its data.
func (m *Meter) Take(ctx context.Context, key string, limit int) (Standing, error) {
	return m.take(ctx, key, limit, false)
}

// Note counts a call without refusing it.
func (m *Meter) Note(ctx context.Context, key string, limit int) error {
	_, err := m.take(ctx, key, limit, true)
	return err
}

func (m *Meter) take(ctx context.Context, key string, limit int, always bool) (Standing, error) {
	now := time.Now()
	if limit < 0 {
		return Standing{math.MaxInt32, math.MaxInt32, now.Add(m.opt.Window)}, nil
	}
	w := m.window(key, now)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !m.covers(w.start, now) {
		w.start, w.taken, w.left = now, 0, 0
	}
	if w.left == 0 && w.taken < limit {
		if w.failure == nil || now.After(w.asked) { // otherwise the store failed while this call waited, and the call does not wait again
			w.failure = m.reserve(ctx, key, w, limit)
			w.asked = time.Now()
		}
		if w.failure != nil {
			return Standing{Limit: limit, Reset: now.Add(m.opt.Window)}, w.failure
		}
	}
	s := Standing{limit, max(0, limit-w.used()), now.Add(m.opt.Window - now.Sub(w.start))}
	if s.Remaining == 0 || w.left == 0 {
		s.Remaining = 0
		if always {
			return s, nil
		}
		return s, m.refusal(s, now)
	}
	w.left--
	s.Remaining--
	return s, nil
}

// block returns how many of a limit's calls are reserved at once.
func block(limit int) int { return min(max(1, limit/10), 1000) }

// reserve takes calls for a window, as many as available up to a block. The window may have begun on another server.
func (m *Meter) reserve(ctx context.Context, key string, w *window, limit int) error {
	if m.opt.Collection == nil {
		more := min(limit-w.taken, block(limit))
		w.taken, w.left = w.taken+more, more
		return nil
	}
	start, taken, left := w.start, 0, 0
	err := m.opt.Collection.Count(context.WithoutCancel(ctx), key, func(doc []byte, now time.Time) ([]byte, error) {
		k, size := kept{Start: now.Add(-time.Since(w.start)), Count: w.taken}, limit
		if m.opt.Collection.Shared() {
			k, size = kept{Start: now}, 0
			if doc != nil {
				if err := json.Unmarshal(doc, &k); err != nil {
					return nil, err
				}
			}
			if began := now.Sub(k.Start); began < 0 || began >= m.opt.Window {
				k = kept{Start: now}
			}
			start = time.Now().Add(-now.Sub(k.Start))
			size = limit - k.Count
		}
		more := max(0, min(limit-k.Count, block(size)))
		k.Count += more
		taken, left = k.Count, more
		return json.Marshal(k)
	})
	if err == nil { // a block that is not stored is not taken
		w.start, w.taken, w.left = start, taken, left
	}
	return err
}

func (m *Meter) refusal(s Standing, now time.Time) error {
	wait := max(1, int(math.Ceil(s.Reset.Sub(now).Seconds())))
	return hutch.Errorf(hutch.Exhausted, "this token has had its %d %s: wait %d s and try again, or ask for a higher limit", s.Limit, m.opt.What, wait).
		With("limit", m.opt.Limit).With("retryAfter", wait)
}

// keptWindows is how many windows are kept before ended ones are dropped.
const keptWindows = 10_000

func (m *Meter) window(key string, now time.Time) *window {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.byKey[key]
	if w == nil {
		if len(m.byKey) >= keptWindows {
			m.sweepLocked(now)
		}
		w = &window{}
		m.byKey[key] = w
	}
	return w
}

func (m *Meter) sweepLocked(now time.Time) {
	for key, w := range m.byKey {
		if w.mu.TryLock() { // a locked window is in use
			if !w.start.IsZero() && !m.covers(w.start, now) {
				delete(m.byKey, key)
			}
			w.mu.Unlock()
		}
	}
}

// Close stores the used counts, so that reserved calls are not lost. Take must not be called any more.
func (m *Meter) Close(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opt.Collection == nil {
		return nil
	}
	var errs []error
	for key, w := range m.byKey {
		w.mu.Lock()
		if w.left > 0 && m.covers(w.start, time.Now()) {
			err := m.giveBack(ctx, key, w)
			if hutch.KindOf(err) == hutch.Unavailable { // each other window would wait as long for the store
				w.mu.Unlock()
				return errors.Join(append(errs, err)...)
			}
			errs = append(errs, err)
		}
		w.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (m *Meter) giveBack(ctx context.Context, key string, w *window) error {
	return m.opt.Collection.Count(ctx, key, func(doc []byte, now time.Time) ([]byte, error) {
		var k kept
		if doc == nil || json.Unmarshal(doc, &k) != nil || now.Sub(k.Start) >= m.opt.Window {
			return doc, nil // the window has ended in between
		}
		k.Count = max(0, k.Count-w.left)
		return json.Marshal(k)
	})
}

package mcp

import (
	linked "container/list"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of what is kept for clients of the older revisions that lost their connection.
const (
	maxReplayBytes   = 32 << 20 // in all
	maxReplayStreams = 64       // most replay streams of one session; each is the answer to a call
	streamCost       = 256      // bytes counted for each stream itself
)

// replay keeps the events of streams, so that a client that reconnects with Last-Event-ID gets the rest. The SDK's own
// store keeps data of each call until the session ends. This store is limited. The oldest stream is dropped as a whole:
// a client that reconnects to it gets an error, and can call again.
type replay struct {
	mu       sync.Mutex
	streams  *linked.List // of *streamEvents, oldest first
	sessions map[string]map[string]*linked.Element
	bytes    int
	opened   int
}

// streamEvents holds the events of one stream so far.
type streamEvents struct {
	session, id string
	number      int
	events      [][]byte
	bytes       int
}

var _ sdk.EventStore = (*replay)(nil)

func newReplay() *replay {
	return &replay{streams: linked.New(), sessions: map[string]map[string]*linked.Element{}}
}

// Open implements sdk.EventStore.
func (r *replay) Open(_ context.Context, session, stream string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := r.sessions[session]
	if mine == nil {
		mine = map[string]*linked.Element{}
		r.sessions[session] = mine
	}
	if mine[stream] != nil {
		return nil
	}
	if len(mine) >= maxReplayStreams {
		r.forgetLocked(oldest(mine))
	}
	r.opened++
	mine[stream] = r.streams.PushBack(&streamEvents{session: session, id: stream, number: r.opened, bytes: streamCost})
	r.sessions[session] = mine // forgetting a stream may have removed it
	r.addLocked(streamCost)
	return nil
}

// oldest returns the oldest of a session's streams.
func oldest(mine map[string]*linked.Element) (first *linked.Element) {
	for _, e := range mine {
		if first == nil || e.Value.(*streamEvents).number < first.Value.(*streamEvents).number {
			first = e
		}
	}
	return first
}

// Append implements sdk.EventStore. Events of a forgotten stream are not kept.
func (r *replay) Append(_ context.Context, session, stream string, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[session][stream]
	if e == nil {
		return nil
	}
	s := e.Value.(*streamEvents)
	s.events = append(s.events, slices.Clone(data))
	s.bytes += len(data)
	r.addLocked(len(data))
	return nil
}

func (r *replay) addLocked(n int) {
	r.bytes += n
	for r.bytes > maxReplayBytes {
		r.forgetLocked(r.streams.Front())
	}
}

func (r *replay) forgetLocked(e *linked.Element) {
	s := r.streams.Remove(e).(*streamEvents)
	r.bytes -= s.bytes
	delete(r.sessions[s.session], s.id)
	if len(r.sessions[s.session]) == 0 {
		delete(r.sessions, s.session)
	}
}

var errForgotten = errors.New("the stream is no longer known: call again")

// After implements sdk.EventStore.
func (r *replay) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[session][stream]
	if e == nil {
		return func(yield func([]byte, error) bool) { yield(nil, errForgotten) }
	}
	events := e.Value.(*streamEvents).events
	rest := slices.Clone(events[min(max(index+1, 0), len(events)):])
	return func(yield func([]byte, error) bool) {
		for _, data := range rest {
			if !yield(data, nil) {
				return
			}
		}
	}
}

// SessionClosed implements sdk.EventStore.
func (r *replay) SessionClosed(_ context.Context, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.sessions[session] {
		r.forgetLocked(e)
	}
	return nil
}

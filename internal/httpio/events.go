package httpio

import (
	"sync"
	"time"
)

// EventStream is the media type of server-sent events.
const EventStream = "text/event-stream"

// AppendEvent appends one server-sent event to b. An event without an id does
// not change the position that a client continues from. The data must hold no
// line feed, as encoded JSON does not.
func AppendEvent(b []byte, id, name string, data []byte) []byte {
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(append(b, "event: "...), name...)
	b = append(append(b, "\ndata: "...), data...)
	return append(b, "\n\n"...)
}

// Events sends server-sent events, and comments between them so that proxies do
// not close a silent connection. The answer begins with the first event or
// comment: before that the handler can still answer something else.
type Events struct {
	w     *Writer
	every time.Duration
	stop  chan struct{}
	ping  sync.WaitGroup

	mu    sync.Mutex // one event at a time
	begun bool
	buf   []byte
}

// NewEvents starts to send comments at an interval. The handler calls Close before it returns.
func NewEvents(w *Writer, every time.Duration) *Events {
	es := &Events{w: w, every: every, stop: make(chan struct{})}
	es.ping.Go(es.keepAlive)
	return es
}

func (es *Events) keepAlive() {
	tick := time.NewTicker(es.every)
	defer tick.Stop()
	for {
		select {
		case <-es.stop:
			return
		case <-tick.C:
			es.Comment("") // an error here ends the request's context
		}
	}
}

// Close ends the comments. After it no other goroutine uses the answer. It can
// be called more than once, by the goroutine that sends.
func (es *Events) Close() {
	select {
	case <-es.stop:
	default:
		close(es.stop)
	}
	es.ping.Wait()
}

// Begun reports whether the answer has begun.
func (es *Events) Begun() bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	return es.begun
}

// Send sends one event; see AppendEvent. An error means that the client has disconnected.
func (es *Events) Send(id, name string, data []byte) error {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.buf = AppendEvent(es.buf[:0], id, name, data)
	return es.flushLocked()
}

// Comment sends a comment, which clients ignore.
func (es *Events) Comment(text string) error {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.buf = append(append(append(es.buf[:0], ':'), text...), "\n\n"...)
	return es.flushLocked()
}

func (es *Events) flushLocked() error {
	if !es.begun {
		es.begun = true
		h := es.w.Header()
		h.Set("Content-Type", EventStream)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	}
	if _, err := es.w.Write(es.buf); err != nil {
		return err
	}
	return es.w.FlushError()
}

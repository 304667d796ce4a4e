package rest

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

const eventStream = "text/event-stream"

// wantsEvents reports whether the client asks for server-sent events.
func wantsEvents(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && t == eventStream {
			return true
		}
	}
	return false
}

// events sends server-sent events. The answer begins with the first of them,
// so that what fails before it still has a status of its own.
type events struct {
	w    writer
	stop func() // ends the comments; to be called before the handler returns

	mu    sync.Mutex // one event at a time
	begun bool
	buf   bytes.Buffer
}

func (h *Handler) events(w http.ResponseWriter) *events {
	es := &events{w: writer{w, h.stall}}
	var ping sync.WaitGroup
	done := make(chan struct{})
	ping.Go(func() { es.keepAlive(done) })
	es.stop = sync.OnceFunc(func() {
		close(done)
		ping.Wait()
	})
	return es
}

// keepAlive sends comments, for what stands between and drops idle connections.
func (es *events) keepAlive(done <-chan struct{}) {
	tick := time.NewTicker(pingTime)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		es.mu.Lock()
		es.buf.Reset()
		es.buf.WriteString(":\n\n")
		es.flushLocked()
		es.mu.Unlock()
	}
}

// output sends a piece of output.
func (es *events) output(o hutch.Output) error {
	return es.send(strconv.FormatInt(o.Cursor, 10), string(o.Stream), stream.NewPiece(o))
}

// fail ends the answer with an error: as an event, or if there was none yet, as
// any other call would.
func (es *events) fail(d problem.Details) {
	es.stop()
	if es.begun {
		es.send("", "error", d)
		return
	}
	d.Write(&es.w)
}

// send sends one event.
func (es *events) send(id, name string, v any) error {
	data, err := json.Marshal(v) // which holds no line feed
	if err != nil {
		return err
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	es.buf.Reset()
	if id != "" {
		es.buf.WriteString("id: " + id + "\n")
	}
	es.buf.WriteString("event: " + name + "\ndata: ")
	es.buf.Write(data)
	es.buf.WriteString("\n\n")
	return es.flushLocked()
}

func (es *events) flushLocked() error {
	if !es.begun {
		es.begun = true
		es.w.Header().Set("Content-Type", eventStream)
		es.w.Header().Set("Cache-Control", "no-store")
		es.w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	}
	if _, err := es.w.Write(es.buf.Bytes()); err != nil {
		return errGone
	}
	if http.NewResponseController(es.w.ResponseWriter).Flush() != nil {
		return errGone
	}
	return nil
}

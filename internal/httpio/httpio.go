// Package httpio reads bodies and writes answers of any length over HTTP. A whole body or answer has no time limit, but
// each piece of it has one: a client that neither sends nor reads cannot hold a request for ever. Events are answers
// that are written in this way while something happens.
package httpio

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// chunk is how many bytes are written under one time limit, at most.
const chunk = 128 << 10

// Writer writes an answer. Its time limit starts again for each piece. It is not
// safe for concurrent use.
type Writer struct {
	http.ResponseWriter
	limit time.Duration
	clear bool
}

// NewWriter returns a writer of the answer to r. The client has the time limit to read each piece.
func NewWriter(w http.ResponseWriter, r *http.Request, limit time.Duration) *Writer {
	// HTTP/2 resets a stream at its deadline even when nothing is being written, so a
	// silent stream would end. Over HTTP/1 the deadline must stay set, because the
	// server writes the last bytes after the handler has returned.
	return &Writer{w, limit, r.ProtoMajor > 1}
}

// Unwrap lets http.ResponseController find the original.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *Writer) Write(b []byte) (n int, err error) {
	for {
		done := w.begin()
		var m int
		m, err = w.ResponseWriter.Write(b[n:min(n+chunk, len(b))])
		done()
		if n += m; err != nil || n >= len(b) {
			return n, err
		}
	}
}

// FlushError is called by http.ResponseController.
func (w *Writer) FlushError() error {
	defer w.begin()()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// begin sets the limit of a piece. Not every ResponseWriter can have one.
func (w *Writer) begin() (done func()) {
	rc := http.NewResponseController(w.ResponseWriter)
	rc.SetWriteDeadline(time.Now().Add(w.limit))
	if !w.clear {
		return func() {}
	}
	return func() { rc.SetWriteDeadline(time.Time{}) }
}

// Body reads the body of a request, without a time limit as long as data arrives.
type Body struct {
	io.ReadCloser
	ctx         context.Context
	rc          *http.ResponseController
	idleTimeout time.Duration

	mu    sync.Mutex
	ended bool
}

// NewBody returns the body of r. Reading it fails when no data has arrived for idleTimeout, or, with the cause of the
// request's context, when that context has ended.
func NewBody(w http.ResponseWriter, r *http.Request, idleTimeout time.Duration) *Body {
	return &Body{ReadCloser: r.Body, ctx: r.Context(), rc: http.NewResponseController(w), idleTimeout: idleTimeout}
}

// limit sets the deadline of a read. Some ResponseWriters have no deadlines. A Read can still begin after the request was
// answered. For HTTP/2, a value of net/http is nil by then, so that setting a deadline panics.
func (b *Body) limit(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limitLocked(at)
}

func (b *Body) limitLocked(at time.Time) {
	if b.ended {
		return
	}
	defer func() { recover() }()
	b.rc.SetReadDeadline(at)
}

// arrived removes the limit at the end of the body. From then on net/http reads the connection, to notice that the client
// disconnects, and a limit would end the connection.
func (b *Body) arrived() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limitLocked(time.Time{})
	b.ended = true
}

// Interrupt ends a Read that waits for data, and makes later Reads fail. It does nothing once the body has arrived.
func (b *Body) Interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if within, ok := b.ReadCloser.(*Body); ok {
		within.Interrupt()
	}
	b.limitLocked(time.Now())
	b.ended = true
}

// End has to be called when the handler of the request returns: later reads do not set deadlines any more.
func (b *Body) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

func (b *Body) Read(p []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	b.limit(time.Now().Add(b.idleTimeout))
	// The context is checked after the deadline is set: the code that ends the context may set a deadline of its own at
	// that moment, and that one must not be extended.
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.arrived()
	}
	return n, err
}

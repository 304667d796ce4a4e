package mcp

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// writeLimit is how long a write to a client can block: a client that does not read would otherwise hold its call for
// ever.
const writeLimit = 30 * time.Second

// answer is the response to one message. It adds to the SDK's response: it asks proxies not to buffer, keeps a silent
// stream alive, and refuses a message that is not JSON-RPC with a JSON-RPC error.
type answer struct {
	http.ResponseWriter
	ctx  context.Context // of the request
	body []byte

	silent bool // the answer is one JSON value: send nothing before it
	// These identify the stream when a client reconnects: see takeover.go.
	session, caller string
	stream          atomic.Pointer[string]
	hangUp          context.CancelFunc
	cut             atomic.Bool
	done            chan struct{} // closed when the server owns the response again

	mu      sync.Mutex
	started bool
	closed  bool
	refused bool // the refusal is written, so the SDK's own message is dropped
	// challenge, when set, is the header that tells a client which scope to ask for: the answer then has status 403.
	// While a challenge can still come, prime holds back the event with which the SDK begins a stream.
	challenge string
	mayAsk    bool
	prime     []byte
	every     time.Duration
	timer     *time.Timer
}

// Unwrap lets http.ResponseController find the underlying writer.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startLocked(status)
}

func (a *answer) startLocked(status int) {
	if a.started {
		return
	}
	a.started = true
	h := a.Header()
	if status == http.StatusBadRequest && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		a.refused = true
		return
	}
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		h.Set("X-Accel-Buffering", "no")
	}
	if a.challenge != "" {
		h.Set("WWW-Authenticate", a.challenge)
		status = http.StatusForbidden
	}
	a.ResponseWriter.WriteHeader(status)
	if len(a.prime) > 0 {
		a.ResponseWriter.Write(a.prime)
	}
}

// ask turns the answer into a challenge, if there is one and nothing has been sent.
func (a *answer) ask(challenge string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mayAsk {
		a.challenge = challenge
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if unnamed, ok := bytes.CutPrefix(b, []byte("event: prime\n")); ok {
		// Remove the name of the event. Clients note the position of an event that has no name. They skip an event with
		// an unknown name, and some warn about it at each call.
		n, err := a.primeLocked(unnamed)
		return n + len(b) - len(unnamed), err
	}
	a.startLocked(http.StatusOK)
	if a.refused {
		a.refused = false
		refuseMessage(a.ResponseWriter, a.body, strings.TrimSpace(string(b)))
		return len(b), nil
	}
	return a.writeLocked(b)
}

// primeLocked writes the event with which the SDK begins a stream, or holds it back while a challenge can still come.
func (a *answer) primeLocked(b []byte) (int, error) {
	if a.mayAsk && !a.started {
		a.prime = bytes.Clone(b)
		return len(b), nil
	}
	a.startLocked(http.StatusOK)
	return a.writeLocked(b)
}

func (a *answer) writeLocked(b []byte) (int, error) {
	if a.cut.Load() {
		return 0, errTakenOver
	}
	a.noteStream(b)
	if a.timer != nil {
		a.timer.Reset(a.every)
	}
	return a.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started {
		http.NewResponseController(a.ResponseWriter).Flush()
	}
}

// keepAlive writes a comment, which clients ignore, whenever the stream has been silent for the given time.
func (a *answer) keepAlive(every time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent {
		return
	}
	a.every = every
	a.timer = time.AfterFunc(every, a.comment)
}

func (a *answer) comment() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.startLocked(http.StatusOK)
	if _, err := a.writeLocked([]byte(": still running\n\n")); err == nil {
		http.NewResponseController(a.ResponseWriter).Flush()
	}
}

// close stops the keep-alive comments, because from then on the server owns the response again.
func (a *answer) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
}

// answers finds the answer to which a tool's result will go. The SDK gives a tool only the headers of its request, so
// the key is passed in a header. Its name is in lower case, which clients cannot send, because over HTTP every header
// name arrives with a capital.
type answers struct {
	last atomic.Int64
	byID sync.Map // *answer by id
}

const headerAnswer = "hutch-answer"

func (l *answers) open(r *http.Request, a *answer) (done func()) {
	id := strconv.FormatInt(l.last.Add(1), 36)
	l.byID.Store(id, a)
	map[string][]string(r.Header)[headerAnswer] = []string{id}
	return func() {
		l.byID.Delete(id)
		a.close()
		close(a.done)
	}
}

// of returns nil if the request did not come over HTTP, or has ended.
func (l *answers) of(h http.Header) *answer {
	id := map[string][]string(h)[headerAnswer]
	if len(id) == 0 {
		return nil
	}
	a, _ := l.byID.Load(id[0])
	found, _ := a.(*answer)
	return found
}

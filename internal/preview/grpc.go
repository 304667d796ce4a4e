package preview

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// isCall reports whether a request is a call of gRPC. It, and no other request,
// goes to its server by HTTP/2, as that is what the type promises of the server:
// nobody has to say at which port what is spoken.
func isCall(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';') && r.ProtoMajor == 2 && r.Method == http.MethodPost
}

const (
	// maxCalls are under way at once through one preview. Each holds as much of
	// what was not read yet as callWindow.
	maxCalls   = 512
	callWindow = 128 << 10
)

// callTransport speaks HTTP/2 with servers inside. It waits for an answer as
// long as the caller does: a stream may begin with an hour's silence, and its
// deadline is the caller's to set. What is not taken off its hands in time ends
// the connection, which calls that were given up could not leave otherwise.
type callTransport struct{ *http.Transport }

func newCallTransport(like *http.Transport) callTransport {
	t := like.Clone()
	t.ResponseHeaderTimeout = 0
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: callWindow, WriteByteTimeout: silence}
	return callTransport{t}
}

// RoundTrip implements http.RoundTripper. net/http leaves a call that still
// waits for something to send when its answer has ended or nobody wants it any
// more only if both bodies are closed.
func (t callTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = &callBody{ReadCloser: visitOf(r).body}
	}
	resp, err := t.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = leavable{resp.Body, context.AfterFunc(r.Context(), func() { resp.Body.Close() })}
	}
	return resp, err
}

// callBody is closed under who reads it, which HTTP/2 allows, and once.
type callBody struct {
	io.ReadCloser
	once sync.Once
}

func (b *callBody) Close() error {
	b.once.Do(func() { b.ReadCloser.Close() })
	return nil
}

// leavable is an answer that is closed with its request.
type leavable struct {
	io.ReadCloser
	stop func() bool
}

func (l leavable) Close() error {
	l.stop()
	return l.ReadCloser.Close()
}

// call hands on a call of gRPC: bytes both ways, as many and for as long as both
// sides like.
func (h *Handler) call(w http.ResponseWriter, r *http.Request) {
	v := visitOf(r)
	if !h.calls.begin(v.label) {
		h.page(w, r, crowded)
		return
	}
	defer h.calls.end(v.label)
	h.hide(r)
	v.body, v.deadline = r.Body, deadlineOf(r)
	proxy := *h.proxy
	proxy.Transport, proxy.BufferPool = h.calling, loan{&h.buffers, v}
	defer h.brokeOff(w, r)
	proxy.ServeHTTP(w, r)
}

// brokeOff ends a call whose answer had begun. A caller that is still there is
// told by trailers, as httputil would only have the stream reset.
func (h *Handler) brokeOff(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); {
	case p == nil:
	case p != http.ErrAbortHandler, r.Context().Err() != nil && visitOf(r).Life.Err() == nil:
		panic(p)
	default:
		endCall(w.Header(), http.TrailerPrefix, h.why(r, io.ErrUnexpectedEOF))
	}
}

// deadlineOf is when a caller stops to wait. It is the caller and the server
// that keep to it; whichever of them breaks off then has said why.
func deadlineOf(r *http.Request) time.Time {
	text := r.Header.Get("Grpc-Timeout")
	n, err := strconv.ParseInt(strings.TrimRight(text, "HMSmun"), 10, 64)
	if err != nil || n < 0 {
		return time.Time{}
	}
	unit := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}[text[len(text)-1]]
	if unit == 0 || n > int64(math.MaxInt64/unit) {
		return time.Time{} // no time, or more than there is
	}
	return time.Now().Add(time.Duration(n) * unit)
}

// late reports whether a visit is over that had a time set to it.
func (v *visit) late() bool { return !v.deadline.IsZero() && !time.Now().Before(v.deadline) }

// calls counts those under way, by label.
type calls struct {
	mu sync.Mutex
	of map[string]int
}

func (c *calls) begin(label string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[label] >= maxCalls {
		return false
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[label]++
	return true
}

func (c *calls) end(label string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[label]--; c.of[label] == 0 {
		delete(c.of, label)
	}
}

// callStatus is what gRPC calls a status of HTTP.
var callStatus = map[int]int{
	http.StatusUnauthorized:          16, // UNAUTHENTICATED
	http.StatusForbidden:             7,  // PERMISSION_DENIED
	http.StatusNotFound:              5,  // NOT_FOUND
	http.StatusTooManyRequests:       8,  // RESOURCE_EXHAUSTED
	http.StatusRequestEntityTooLarge: 8,
	http.StatusBadGateway:            14, // UNAVAILABLE
	http.StatusServiceUnavailable:    14,
	http.StatusGatewayTimeout:        4, // DEADLINE_EXCEEDED
}

// answerCall tells a caller of gRPC a notice: the answer is an end, and no
// beginning.
func answerCall(w http.ResponseWriter, n notice) {
	w.Header().Set("Content-Type", "application/grpc")
	endCall(w.Header(), "", n)
	w.WriteHeader(http.StatusOK)
}

// endCall writes a notice to the head or, with a prefix, the trailers.
func endCall(header http.Header, prefix string, n notice) {
	status, ok := callStatus[n.status]
	if !ok {
		status = 2 // UNKNOWN
	}
	header.Set(prefix+"Grpc-Status", strconv.Itoa(status))
	header.Set(prefix+"Grpc-Message", callText(n.Title+". "+n.Text))
}

// callText is a text as messages of gRPC are written.
func callText(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

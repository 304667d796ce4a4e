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

// isCall reports whether a request is a gRPC call. Only such requests go to the server by HTTP/2. No setting is needed,
// because their content type implies that the server speaks HTTP/2.
func isCall(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';') && r.ProtoMajor == 2 && r.Method == http.MethodPost
}

const (
	// maxCalls bounds the concurrent calls through one preview. Each call can have callWindow bytes that were not read
	// yet.
	maxCalls   = 512
	callWindow = 128 << 10
)

// callTransport speaks HTTP/2 with servers in sandboxes. It waits for an answer as long as the caller does: a stream
// can be silent for an hour, and the caller sets the deadline. If a server does not read the data of calls in time, the
// connection is ended, because abandoned calls could not be ended otherwise.
type callTransport struct{ *http.Transport }

func newCallTransport(like *http.Transport) callTransport {
	t := like.Clone()
	t.ResponseHeaderTimeout = 0
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	t.Protocols.SetHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: callWindow, WriteByteTimeout: bodyIdleTimeout}
	return callTransport{t}
}

// RoundTrip implements http.RoundTripper. If the answer has ended or was abandoned while net/http still waits for
// request data, net/http ends the call only when both bodies are closed.
func (t callTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = &callBody{ReadCloser: visitOf(r).body}
	}
	resp, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := resp.Body
	resp.Body = leavable{body, context.AfterFunc(r.Context(), func() { body.Close() })}
	return resp, nil
}

// callBody is a request body that can be closed during a Read, as HTTP/2 allows, and is closed only once.
type callBody struct {
	io.ReadCloser
	once sync.Once
}

func (b *callBody) Close() error {
	b.once.Do(func() { b.ReadCloser.Close() })
	return nil
}

// leavable is the body of an answer whose Close also closes the request's body.
type leavable struct {
	io.ReadCloser
	stop func() bool
}

func (l leavable) Close() error {
	l.stop()
	return l.ReadCloser.Close()
}

// call forwards a gRPC call in both directions, without limits on size and time.
func (h *Handler) call(w http.ResponseWriter, r *http.Request) {
	v := visitOf(r)
	if !h.calls.begin(v.label) {
		h.page(w, r, crowded)
		return
	}
	defer h.calls.end(v.label)
	if !h.hide(r) {
		h.page(w, r, tooManyTokens)
		return
	}
	v.body, v.deadline = r.Body, deadlineOf(r)
	proxy := *h.proxy
	proxy.Transport, proxy.BufferPool = finalOnly{h.calling}, visitBuffers{&h.buffers, v}
	defer h.brokeOff(w, r)
	proxy.ServeHTTP(w, r)
}

// brokeOff ends a call whose answer had begun. It reports the reason in trailers; httputil would only reset the stream.
func (h *Handler) brokeOff(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); {
	case p == nil:
	case p != http.ErrAbortHandler, r.Context().Err() != nil && visitOf(r).Life.Err() == nil:
		panic(p)
	default:
		endCall(w.Header(), http.TrailerPrefix, h.why(r, io.ErrUnexpectedEOF))
	}
}

// deadlineOf returns when a caller stops waiting. The caller and the server observe it themselves; the side that breaks
// off reports why.
func deadlineOf(r *http.Request) time.Time {
	text := r.Header.Get("Grpc-Timeout")
	n, err := strconv.ParseInt(strings.TrimRight(text, "HMSmun"), 10, 64)
	if err != nil || n < 0 {
		return time.Time{}
	}
	unit := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}[text[len(text)-1]]
	if unit == 0 || n > int64(math.MaxInt64/unit) {
		return time.Time{} // no time, or a malformed one
	}
	return time.Now().Add(time.Duration(n) * unit)
}

// late reports whether a visit's deadline has passed.
func (v *visit) late() bool { return !v.deadline.IsZero() && !time.Now().Before(v.deadline) }

// calls counts open calls, by label.
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

// callStatus maps HTTP statuses to gRPC statuses.
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

// answerCall sends a notice to a gRPC caller, as an answer without messages.
func answerCall(w http.ResponseWriter, n notice) {
	w.Header().Set("Content-Type", "application/grpc")
	endCall(w.Header(), "", n)
	w.WriteHeader(http.StatusOK)
}

// endCall writes a notice to the headers or, with a prefix, to the trailers.
func endCall(header http.Header, prefix string, n notice) {
	status, ok := callStatus[n.status]
	if !ok {
		status = 2 // UNKNOWN
	}
	header.Set(prefix+"Grpc-Status", strconv.Itoa(status))
	header.Set(prefix+"Grpc-Message", callText(n.Title+". "+n.Text))
}

// callText encodes a text as gRPC encodes the message of a status.
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

package envd

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/httpio"
	"hutch/internal/jsonfault"
)

// The Connect protocol, as specified by https://connectrpc.com/docs/protocol, with the JSON codec and without
// compression. A unary call has one JSON message in each direction; its error is a status and a JSON object. In a
// stream each message is a frame: a byte of flags, the length in four bytes, and the JSON. The last frame has the flag
// endOfStream.
const (
	unaryType  = "application/json"
	streamType = "application/connect+json"

	compressed  = 1
	endOfStream = 2
	// maxMessage is the longest message that is read, in bytes.
	maxMessage = 16 << 20
)

// code is the name of an error in the protocol.
type code string

const (
	canceled           code = "canceled"
	unknown            code = "unknown"
	invalidArgument    code = "invalid_argument"
	deadlineExceeded   code = "deadline_exceeded"
	notFound           code = "not_found"
	alreadyExists      code = "already_exists"
	permissionDenied   code = "permission_denied"
	resourceExhausted  code = "resource_exhausted"
	failedPrecondition code = "failed_precondition"
	unimplemented      code = "unimplemented"
	internal           code = "internal"
	unavailable        code = "unavailable"
	dataLoss           code = "data_loss"
	unauthenticated    code = "unauthenticated"
)

var httpStatus = map[code]int{
	canceled: 499, unknown: 500, invalidArgument: 400, deadlineExceeded: 504, notFound: 404, alreadyExists: 409, permissionDenied: 403,
	resourceExhausted: 429, failedPrecondition: 400, unimplemented: 501, internal: 500, unavailable: 503, dataLoss: 500, unauthenticated: 401,
}

var codeOf = map[hutch.Kind]code{
	hutch.Invalid: invalidArgument, hutch.Denied: permissionDenied, hutch.NotFound: notFound, hutch.Conflict: failedPrecondition,
	hutch.Exhausted: resourceExhausted, hutch.Unsupported: unimplemented, hutch.Unavailable: unavailable, hutch.Timeout: deadlineExceeded, hutch.Internal: internal,
}

// rpcError is an error with a code of the protocol.
type rpcError struct {
	Code    code   `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return string(e.Code) + ": " + e.Message }

func rpcErrorf(c code, format string, args ...any) *rpcError {
	return &rpcError{c, fmt.Sprintf(format, args...)}
}

// asRPC returns err in the protocol's form.
func asRPC(err error) *rpcError {
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e
	}
	e := hutch.AsError(err)
	return &rpcError{codeOf[e.Kind], e.Message}
}

// request is a call with its sandbox.
type request struct {
	*http.Request
	target seam.Target
	ctx    context.Context
}

// unary registers a call that has one answer.
func unary[Q, A any](h *Handler, path string, answer func(request, Q) (A, error)) {
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if refusesProtocol(w, r, unaryType) {
			return
		}
		q := request{r, seam.From(r.Context()), r.Context()}
		var message Q
		b, err := readMessage(w, r, h.stall, 0)
		if err == nil {
			err = decode(b, &message)
		}
		var a A
		if err == nil {
			a, err = answer(q, message)
		}
		switch {
		case err == nil:
			writeJSON(w, http.StatusOK, a)
		case gone(err):
			refuseGone(w, q.target)
		default:
			e := h.describe(r, err)
			writeJSON(w, httpStatus[e.Code], e)
		}
	})
}

// serverStream registers a call that has a stream of answers.
func serverStream[Q any](h *Handler, path string, answer func(request, Q, *stream) error) {
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if refusesProtocol(w, r, streamType) {
			return
		}
		s := &stream{w: w, pause: keepaliveInterval(r)}
		q := request{r, seam.From(r.Context()), r.Context()}
		var message Q
		b, err := readMessage(w, r, h.stall, frameHead)
		if err == nil {
			b, err = onlyFrame(b)
		}
		if err == nil {
			err = decode(b, &message)
		}
		if err == nil {
			err = answer(q, message, s)
		}
		h.endStream(w, q, s, err)
	})
}

// endStream sends the last frame. If the sandbox or the client is gone, it cuts the connection: that is how clients
// recognise that a sandbox was destroyed.
func (h *Handler) endStream(w http.ResponseWriter, q request, s *stream, err error) {
	switch {
	case err == nil:
		s.end(nil)
	case !s.begun && gone(err):
		refuseGone(w, q.target)
	case errors.Is(err, errGone), s.begun && h.sandboxIsGone(q, err):
		panic(http.ErrAbortHandler)
	default:
		s.end(h.describe(q.Request, err))
	}
}

// sandboxIsGone reports whether the sandbox of a call no longer runs.
func (h *Handler) sandboxIsGone(q request, err error) bool {
	if _, own := errors.AsType[*rpcError](err); own {
		return false
	}
	return seam.Vanished(unmetered(context.WithoutCancel(q.ctx)), q.target, err)
}

// describe returns the error to show, and logs its hidden cause.
func (h *Handler) describe(r *http.Request, err error) *rpcError {
	if cause := context.Cause(r.Context()); cause != nil && hutch.KindOf(cause) != hutch.Internal {
		return asRPC(cause) // the server is closing, or the token has ended
	}
	if errors.Is(err, context.Canceled) {
		return rpcErrorf(canceled, "the client has gone")
	}
	e := asRPC(err)
	if e.Code == internal {
		h.log.Error("call", "request", r.Method+" "+r.URL.Path, "err", err, "cause", hutch.AsError(err).Cause)
	}
	return e
}

// refusesProtocol answers requests in forms that this package does not read.
func refusesProtocol(w http.ResponseWriter, r *http.Request, want string) bool {
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(parameters["charset"])
	encoding := r.Header.Get("Content-Encoding") + r.Header.Get("Connect-Content-Encoding")
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
	case err != nil || media != want || charset != "" && charset != "utf-8":
		w.Header().Set("Accept-Post", want)
		w.WriteHeader(http.StatusUnsupportedMediaType)
	case encoding != "" && encoding != "identity":
		refuseEncoding(w, want, encoding)
	default:
		return false
	}
	return true
}

func refuseEncoding(w http.ResponseWriter, want, encoding string) {
	e := rpcErrorf(unimplemented, "unknown compression %.40q: this server takes messages without compression", encoding)
	w.Header().Set("Accept-Encoding", "identity")
	if want == streamType {
		s := &stream{w: w}
		s.end(e)
		return
	}
	writeJSON(w, httpStatus[e.Code], e)
}

var errManyValues = hutch.Errorf(hutch.Exhausted, "the lists in the message take more memory than there is for the requests of this token: send fewer values at a time").With("limit", "memory of requests")

// readMessage reads a body to its end, so that the server notices when the client leaves.
func readMessage(w http.ResponseWriter, r *http.Request, silence time.Duration, head int) ([]byte, error) {
	limit := maxMessage + head
	b, err := io.ReadAll(io.LimitReader(httpio.NewBody(w, r, silence), int64(limit)+1))
	switch {
	case err != nil && errors.Is(err, hutch.Exhausted):
		return nil, err // the owner's memory budget
	case err != nil:
		return nil, rpcErrorf(invalidArgument, "the request's body did not arrive whole: send it again")
	case len(b) > limit:
		return nil, rpcErrorf(resourceExhausted, "the message has more than %d bytes, the limit", maxMessage)
	case !caller.From(r.Context()).Budget.TakeJSON(b): // b can include the five bytes of a frame's head
		return nil, errManyValues
	}
	return b, nil
}

// frameHead is the length of a frame's header.
const frameHead = 5

// onlyFrame returns the message of a body that has one frame.
func onlyFrame(b []byte) ([]byte, error) {
	if len(b) < frameHead {
		return nil, rpcErrorf(invalidArgument, "protocol error: the body ends inside the head of a frame")
	}
	flags, length, rest := b[0], int64(binary.BigEndian.Uint32(b[1:])), b[frameHead:]
	switch {
	case flags&compressed != 0:
		return nil, rpcErrorf(unimplemented, "the frame is compressed: this server takes messages without compression")
	case flags != 0:
		return nil, rpcErrorf(invalidArgument, "protocol error: a message has the flags %#x", flags)
	case int64(len(rest)) < length:
		return nil, rpcErrorf(invalidArgument, "protocol error: the frame promises %d bytes and has %d", length, len(rest))
	case int64(len(rest)) > length:
		return nil, rpcErrorf(invalidArgument, "protocol error: there is more than one message")
	}
	return rest, nil
}

// decode reads a message. A field that this package does not know is refused, because ignoring an option would be wrong.
func decode(b []byte, message any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(message)
	if err == nil && d.More() {
		return rpcErrorf(invalidArgument, "the message continues after the end of its JSON value: send one value")
	}
	if e, own := errors.AsType[*rpcError](err); own {
		return e
	}
	if err == nil {
		return nil
	}
	if f := jsonfault.Find(b, message, err); f != nil && f.Unknown {
		return rpcErrorf(unimplemented, "this server does not have the field %q", f.Path)
	}
	return rpcErrorf(invalidArgument, "the message cannot be read: %.300s", jsonfault.Explain(b, message, err))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", unaryType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
}

// errGone ends the work for a client that disconnected or stopped reading.
var errGone = errors.New("the client has gone")

// stream sends frames. Several goroutines can send.
type stream struct {
	w     http.ResponseWriter
	pause time.Duration // time without data before a keepalive

	mu    sync.Mutex
	begun bool
	sent  time.Time
}

// send sends a message.
func (s *stream) send(v any) error { return s.frame(0, v) }

// end sends the last frame.
func (s *stream) end(e *rpcError) {
	s.frame(endOfStream, struct {
		Error *rpcError `json:"error,omitempty"`
	}{e})
}

func (s *stream) frame(flags byte, v any) error {
	message, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", streamType)
		s.w.Header().Set("Cache-Control", "no-store")
		s.w.WriteHeader(http.StatusOK)
	}
	s.sent = time.Now()
	if _, err := s.w.Write(append(b, message...)); err != nil {
		return errGone
	}
	if flags&endOfStream == 0 && http.NewResponseController(s.w).Flush() != nil {
		return errGone
	}
	return nil
}

// idle returns for how long nothing was sent.
func (s *stream) idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.sent)
}

// keepAlive sends message whenever nothing was sent for the interval that the client asked for. It does so until the
// returned function is called.
func (s *stream) keepAlive(message any, fail func()) (stop func()) {
	done := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(max(s.pause-s.idle(), time.Millisecond)):
			}
			if s.idle() >= s.pause && s.send(message) != nil {
				fail()
				return
			}
		}
	})
	return func() {
		close(done)
		sending.Wait()
	}
}

// keepaliveInterval returns the interval that a client asks for.
func keepaliveInterval(r *http.Request) time.Duration {
	seconds, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds < 1 || seconds > 3600 {
		seconds = 90
	}
	return time.Duration(seconds) * time.Second
}

// timeLimit returns the time limit of a call; 0 means no limit.
func timeLimit(r *http.Request) (time.Duration, error) {
	text := r.Header.Get("Connect-Timeout-Ms")
	if text == "" || text == "0" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 0 || len(text) > 10 {
		return 0, rpcErrorf(invalidArgument, "protocol error: invalid timeout %.40q", text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// errTimeUp is the error of a call whose time limit is over.
var errTimeUp = rpcErrorf(deadlineExceeded, "context deadline exceeded")

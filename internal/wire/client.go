package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"hutch"
)

const (
	replyTime = 30 * time.Second // for a request with one answer, on a host that has much to do
	// killGrace is how long after its time limit a process may take to be
	// reported dead before its agent counts as hung. A sentry that shares two
	// cores with much else needs that long to end five hundred processes.
	killGrace = 28 * time.Second
	// welcomeTime is how long the first connection of a request waits for its
	// welcome; each further one waits twice as long, within replyTime.
	welcomeTime = 4 * time.Second
	maxIdle     = 32 // connections kept for reuse
)

// Client is the daemon's side of the protocol towards one agent. It keeps
// connections for reuse; the zero value is not usable.
type Client struct {
	dial  func(context.Context) (net.Conn, error)
	token string
	nonce func() []byte // [NewNonce], but in tests

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// NewClient returns a client that dials with dial. Both sides of a connection
// prove that they know token.
func NewClient(dial func(context.Context) (net.Conn, error), token string) *Client {
	return &Client{dial: dial, token: token, nonce: NewNonce}
}

// Close closes the idle connections and refuses new requests. Requests under
// way end when their connections do.
func (c *Client) Close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.mu.Unlock()
	for _, cn := range idle {
		cn.Close()
	}
}

// Ping asks whether the agent lives.
func (c *Client) Ping(ctx context.Context) (Stats, error) {
	return call[Stats](ctx, c, Request{Op: "ping"})
}

// List returns the detached processes, oldest first.
func (c *Client) List(ctx context.Context) ([]Process, error) {
	return call[processes](ctx, c, Request{Op: "list"})
}

// Signal signals a detached process and all it started.
func (c *Client) Signal(ctx context.Context, process string, signal int) error {
	_, err := call[struct{}](ctx, c, Request{Op: "signal", Signal: &Signal{Process: process, Signal: signal}})
	return err
}

// Start starts a detached process.
func (c *Client) Start(ctx context.Context, s Start) (Process, error) {
	s.Detach = true
	return call[Process](ctx, c, Request{Op: "start", Start: &s})
}

// Run runs an attached process to its end. Its output goes to out; stdin, when
// s.Stdin is set, comes from stdin. When ctx is done or out fails, the agent
// kills the tree, and Run returns that error.
func (c *Client) Run(ctx context.Context, s Start, stdin io.Reader, out func(hutch.Output) error) (Exit, error) {
	var limit time.Time
	if s.TimeoutMS > 0 {
		limit = time.Now().Add(time.Duration(s.TimeoutMS) * time.Millisecond)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !limit.IsZero() {
		go c.probe(ctx, limit, cancel)
	}
	return c.stream(ctx, Request{Op: "start", Start: &s}, stdin, out, limit)
}

const (
	probeAfter = time.Second     // after a time limit the agent is to be at work
	probeTime  = 4 * time.Second // until it is taken to stand still
)

// probe cancels a request whose time limit is over when the agent does not even
// greet: then its whole sandbox stands still. An agent that greets is ending
// what the request started, which can take long on a busy host. When the
// sandbox goes on, its agent finds the connection closed, and ends that too.
func (c *Client) probe(ctx context.Context, limit time.Time, cancel context.CancelCauseFunc) {
	for wait := time.Until(limit) + probeAfter; ; wait = probeTime {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := c.greets(ctx); err != nil && ctx.Err() == nil {
			cancel(Stalled(err))
			return
		}
	}
}

// greets reports whether the agent welcomes a new connection, soon.
func (c *Client) greets(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	cn, err := c.enter(ctx)
	if err != nil {
		return err
	}
	return cn.Close()
}

// Stalled is the error for a sandbox that stands still.
func Stalled(cause error) error {
	return hutch.Errorf(hutch.Unavailable,
		"the sandbox did not answer after the time limit: its runtime stands still, or the host is overloaded. Nothing in it is lost, and the command is ended as soon as the sandbox goes on. Try again in a moment").
		With("retryAfter", 5).Because(cause)
}

// Attach hands the output of a detached process to out.
func (c *Client) Attach(ctx context.Context, a Attach, out func(hutch.Output) error) (Exit, error) {
	return c.stream(ctx, Request{Op: "attach", Attach: &a}, nil, out, time.Time{})
}

// call makes a request that has one answer.
func call[T any](ctx context.Context, c *Client, req Request) (T, error) {
	var answer T
	ctx, cancel := context.WithTimeoutCause(ctx, replyTime, broken(fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)))
	defer cancel()
	err := c.do(ctx, req, func(cn *conn, t Type, payload []byte) error {
		if t != TypeReply {
			return broken(fmt.Errorf("frame of type %q in answer to %s", t, req.Op))
		}
		if err := json.Unmarshal(payload, &answer); err != nil {
			return broken(err)
		}
		return nil
	})
	return answer, err
}

func (c *Client) stream(ctx context.Context, req Request, stdin io.Reader, out func(hutch.Output) error, limit time.Time) (Exit, error) {
	var s *stream
	err := c.do(ctx, req, func(cn *conn, t Type, payload []byte) error {
		if t != TypeStarted {
			return broken(fmt.Errorf("frame of type %q instead of started", t))
		}
		s = &stream{conn: cn, out: out, limit: limit, room: make(chan int64, 1)}
		if a := req.Attach; a != nil {
			s.attach(*a)
		}
		return s.run(stdin)
	})
	if s == nil {
		return Exit{}, err
	}
	return s.exit, err
}

// do sends a request on a free connection and hands its first answer to then,
// which reads on to the frame that ends the request. A connection that then
// left in good order is kept.
func (c *Client) do(ctx context.Context, req Request, then func(*conn, Type, []byte) error) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if len(body) > MaxRequest {
		return hutch.Errorf(hutch.Invalid, "the request has %d bytes: at most %d are allowed", len(body), MaxRequest)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause // a quick agent would have done it before it saw the connection close
	}
	for {
		cn, used, err := c.conn(ctx)
		if err != nil {
			return err
		}
		t, payload, err := cn.begin(ctx, body)
		if used && hungUp(err) && ctx.Err() == nil {
			cn.end(false)
			continue // while it was idle; a fresh one tells the truth
		}
		if err == nil {
			err = then(cn, t, payload)
		}
		if err != nil && !errors.Is(err, errRefused) {
			cn.end(false)
			return c.fault(ctx, err)
		}
		if cn.end(true) {
			c.keep(cn)
		}
		return err
	}
}

// hungUp reports whether err says that the other side had closed a connection
// before it answered.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// fault says what a broken request means to the caller.
func (c *Client) fault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	if e, ok := errors.AsType[callerError](err); ok {
		return e.error
	}
	return broken(err)
}

// broken is the error for an agent that is gone, hangs, or breaks the protocol.
func broken(cause error) error {
	return hutch.Errorf(hutch.Unavailable,
		"the sandbox's agent is gone or does not answer: look at the sandbox's status, or destroy it and make a new one").Because(cause)
}

// conn returns a connection that has said hello, and whether it was used before.
func (c *Client) conn(ctx context.Context) (*conn, bool, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, false, broken(net.ErrClosed)
	}
	if n := len(c.idle); n > 0 {
		cn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return cn, true, nil
	}
	c.mu.Unlock()
	cn, err := c.open(ctx)
	if err != nil {
		return nil, false, c.fault(ctx, err)
	}
	return cn, false, nil
}

// open opens a connection. One that nobody welcomes is given up for another, as
// nothing has been asked for yet: a wake-up may be lost where it was accepted.
func (c *Client) open(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	for wait := welcomeTime; ; wait *= 2 {
		once, cancel := context.WithTimeout(ctx, wait)
		cn, err := c.enter(once)
		silent := once.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !silent {
			return cn, err
		}
	}
}

// enter dials and says hello.
func (c *Client) enter(ctx context.Context) (*conn, error) {
	nc, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	cn := &conn{Conn: nc, r: NewReader(nc, MaxReply), w: NewWriter(nc)}
	err = cn.greet(c.token, c.nonce())
	if !stop() && err == nil {
		err = context.Cause(ctx) // it came as the connection closed
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return cn, nil
}

func (c *Client) keep(cn *conn) {
	cn.r.trim()
	cn.w.trim()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdle {
		cn.Close()
		return
	}
	c.idle = append(c.idle, cn)
}

// conn is one connection. One request uses it at a time.
type conn struct {
	net.Conn
	r    *Reader
	w    *Writer
	stop func() bool // undoes the watch on the request's context
	busy bool        // a goroutine may still write to it
}

// greet says hello, and proves that we know the token to an agent that has proved
// it.
func (cn *conn) greet(token string, nonce []byte) error {
	if err := cn.w.WriteJSON(TypeHello, Hello{Version: Version, Nonce: nonce}); err != nil {
		return err
	}
	t, payload, err := cn.r.Next()
	if err != nil {
		return err
	}
	switch t {
	case TypeWelcome:
		var w Welcome
		if err := json.Unmarshal(payload, &w); err != nil {
			return err
		}
		if w.Version != Version {
			return outdated(fmt.Errorf("agent speaks version %d of the protocol, this daemon %d", w.Version, Version))
		}
		n := Nonces{Daemon: nonce, Agent: w.Nonce}
		if !n.Proves(token, AgentSide, w.Proof) {
			return hutch.Errorf(hutch.Denied, "what answers in the place of the sandbox's agent does not know its token: destroy the sandbox and make a new one")
		}
		return cn.w.Write(TypeProof, n.Proof(token, DaemonSide))
	case TypeError: // an agent of our version refuses no hello
		return outdated(refusal(payload))
	}
	return fmt.Errorf("frame of type %q in answer to hello", t)
}

// ErrOutdated is in the chain of an error when the agent is that of another version
// of Hutch, with which this one cannot speak.
var ErrOutdated = errors.New("an agent of another version")

func outdated(cause error) error {
	return hutch.Errorf(hutch.Unsupported, "the sandbox was started by another version of Hutch, whose agent this server cannot use: end the server, start that version again and run `hutch down`, which keeps the sandbox; then start this version").
		Because(errors.Join(ErrOutdated, cause))
}

// begin sends a request and reads the first frame of the answer. From here to
// end the connection closes when ctx is done.
func (cn *conn) begin(ctx context.Context, body []byte) (Type, []byte, error) {
	cn.stop = context.AfterFunc(ctx, func() { cn.Close() })
	cn.SetDeadline(time.Now().Add(replyTime))
	if err := cn.w.Write(TypeRequest, body); err != nil {
		return 0, nil, err
	}
	t, payload, err := cn.r.Next()
	if err != nil {
		return 0, nil, err
	}
	cn.SetDeadline(time.Time{})
	if t == TypeError {
		return 0, nil, refusal(payload)
	}
	return t, payload, nil
}

// end leaves the request and reports whether the connection can be used again:
// not if there is more to read, as no answer may be taken for the next one's.
func (cn *conn) end(good bool) bool {
	if !cn.stop() || !good || cn.busy || cn.r.Buffered() > 0 {
		cn.Close()
		return false
	}
	cn.SetReadDeadline(time.Time{})
	return true
}

// errRefused marks an error that the agent sent in good order.
var errRefused = errors.New("refused by the agent")

// refusal is the error in an error frame. Its text is the agent's, so it is
// bounded and its kind is one of ours.
func refusal(payload []byte) error {
	var f Failure
	if err := json.Unmarshal(payload, &f); err != nil {
		return err
	}
	switch f.Kind {
	case hutch.Invalid, hutch.Denied, hutch.NotFound, hutch.Conflict, hutch.Exhausted, hutch.Unsupported, hutch.Unavailable:
	default:
		f.Kind = hutch.Internal
	}
	return hutch.Errorf(f.Kind, "%s", printable(f.Message, 2000)).Because(errRefused)
}

// printable is at most n bytes of text that a terminal can be shown.
func printable(s string, n int) string {
	cut := len(s) > n
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(n, len(s))], ""))
	if cut {
		s += "…"
	}
	return s
}

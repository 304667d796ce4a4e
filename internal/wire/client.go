package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"hutch"
)

const (
	replyTime = 30 * time.Second // for a request with one answer, on a busy host
	// killGrace is how much time an agent has, after the time limit of a process, to report that the process is dead.
	// After that, the agent counts as hung. A sentry on two busy cores needs that long to end five hundred processes.
	killGrace = 28 * time.Second
	// welcomeTime is how long the first connection of a request waits for its welcome; each further one waits twice
	// as long, up to replyTime.
	welcomeTime = 4 * time.Second
	maxIdle     = 32 // connections kept for reuse
)

// Client is the daemon's side of the protocol towards one agent. It keeps connections for reuse; the zero value is
// not usable.
type Client struct {
	dial  func(context.Context) (net.Conn, error)
	token string
	nonce func() []byte // NewNonce, except in tests

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// NewClient returns a client that dials with dial. Both sides of a connection
// prove that they know token.
func NewClient(dial func(context.Context) (net.Conn, error), token string) *Client {
	return &Client{dial: dial, token: token, nonce: NewNonce}
}

// Close closes the idle connections and refuses new requests. Open requests end when their connections do.
func (c *Client) Close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.mu.Unlock()
	for _, cn := range idle {
		cn.Close()
	}
}

// Ping checks that the agent lives.
func (c *Client) Ping(ctx context.Context) (Stats, error) {
	return call[Stats](ctx, c, Request{Op: "ping"})
}

// List returns the detached processes, oldest first.
func (c *Client) List(ctx context.Context) ([]Process, error) {
	return call[processes](ctx, c, Request{Op: "list"})
}

// Signal signals a detached process and all processes that it started.
func (c *Client) Signal(ctx context.Context, process string, signal int) error {
	_, err := call[struct{}](ctx, c, Request{Op: "signal", Signal: &Signal{Process: process, Signal: signal}})
	return err
}

// Start starts a detached process.
func (c *Client) Start(ctx context.Context, s Start) (Process, error) {
	s.Detach = true
	return call[Process](ctx, c, Request{Op: "start", Start: &s})
}

// Run runs an attached process to its end. Its output goes to out; stdin, if s.Stdin is set, is read from stdin. When
// ctx is done or out fails, the agent kills the tree, and Run returns that error.
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
	probeAfter = time.Second     // after a time limit, before the agent is probed
	probeTime  = 4 * time.Second // after the probe, before the agent counts as stopped
)

// probe cancels a request after its time limit if the agent does not even answer a hello: then its whole sandbox is
// stopped. An agent that answers is still ending the request's processes, which can take long on a busy host. When a
// stopped sandbox continues, its agent finds the connection closed, and ends them too.
func (c *Client) probe(ctx context.Context, limit time.Time, cancel context.CancelCauseFunc) {
	for wait := time.Until(limit) + probeAfter; ; wait = probeTime {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := c.greets(ctx); err != nil && ctx.Err() == nil {
			cancel(stalled(err))
			return
		}
	}
}

// greets reports whether the agent soon welcomes a new connection.
func (c *Client) greets(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	cn, err := c.enter(ctx)
	if err != nil {
		return err
	}
	return cn.Close()
}

// stalled returns the error for a sandbox that is stopped.
func stalled(cause error) error {
	return hutch.Errorf(hutch.Unavailable,
		"the sandbox did not answer after the time limit: its runtime is stuck, or the host is overloaded. Nothing in it is lost, and the command is ended as soon as the sandbox continues. Try again in a moment").
		With("retryAfter", 5).Because(cause)
}

// Attach passes the output of a detached process to out.
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

// do sends a request on a free connection, and passes the first frame of the answer to the function then, which reads
// the other frames of the request. If the connection is still valid afterwards, do keeps it for the next request.
func (c *Client) do(ctx context.Context, req Request, then func(*conn, Type, []byte) error) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if len(body) > MaxRequest {
		return hutch.Errorf(hutch.Invalid, "the request has %d bytes: at most %d are allowed", len(body), MaxRequest)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause // a fast agent can have done the request before it saw that the connection closed
	}
	for {
		cn, used, err := c.conn(ctx)
		if err != nil {
			return err
		}
		t, payload, err := cn.begin(ctx, body)
		if used && hungUp(err) && ctx.Err() == nil {
			cn.end(false)
			continue // the connection closed while it was idle; a new one shows whether the agent lives
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

// hungUp reports whether err means that the other side closed a connection before it answered.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// fault turns the error of a failed request into one for the caller.
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

// broken returns the error for an agent that has ended, hangs, or violates the protocol.
func broken(cause error) error {
	return hutch.Errorf(hutch.Unavailable,
		"the sandbox's agent is gone or does not answer: look at the sandbox's status, or destroy it and make a new one").Because(cause)
}

// conn returns a connection after its hello, and whether it was used before.
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

// open opens a connection. A wake-up can be lost after the accept, so if no welcome arrives, open closes the
// connection and tries another. That is safe because no request was sent.
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
		err = context.Cause(ctx) // the connection closed because ctx ended
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
	stop func() bool // stops watching the request's context
	busy bool        // a goroutine can still write to the connection
}

// greet says hello, and proves our token after the agent has proved it.
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
	case TypeError: // an agent of our version accepts every hello
		return outdated(refusal(payload))
	}
	return fmt.Errorf("frame of type %q in answer to hello", t)
}

// ErrOutdated is in the chain of an error when the agent is from an incompatible version of Hutch.
var ErrOutdated = errors.New("an agent of another version")

func outdated(cause error) error {
	return hutch.Errorf(hutch.Unsupported, "the sandbox was started by another version of Hutch, whose agent this server cannot use: end the server, start that version again and run `hutch down`, which keeps the sandbox; then start this version").
		Because(errors.Join(ErrOutdated, cause))
}

// begin sends a request and reads the first frame of the answer. Until end, the connection closes when ctx is done.
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

// end finishes the request and reports whether the connection can be reused. It cannot if there is unread data, which
// would look like the next answer.
func (cn *conn) end(good bool) bool {
	if !cn.stop() || !good || cn.busy || cn.r.Buffered() > 0 {
		cn.Close()
		return false
	}
	cn.SetReadDeadline(time.Time{})
	return true
}

// errRefused marks a well-formed error from the agent.
var errRefused = errors.New("refused by the agent")

// refusal decodes an error frame. Its text comes from the agent, so it is limited, and unknown kinds are refused.
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
	cause := errRefused
	if f.Cause != "" {
		cause = fmt.Errorf("%w: %s", errRefused, printable(f.Cause, 2000))
	}
	err := hutch.Errorf(f.Kind, "%s", printable(f.Message, 2000)).Because(cause)
	if f.Kind == hutch.Exhausted && slices.Contains(agentLimits, f.Limit) {
		err = err.With("limit", f.Limit)
	}
	return err
}

// agentLimits are the limits that an agent knows. Callers act on the name of a limit, so an agent cannot claim that a
// limit of the server or of a token is reached.
var agentLimits = []string{"processes", "pids", "disk", "files", "matches", "watches"}

// printable returns at most n bytes of text, safe for a terminal.
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

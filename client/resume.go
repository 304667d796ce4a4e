package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/stream"
)

const (
	firstPause = 50 * time.Millisecond // pause before the first reconnect
	maxPause   = 2 * time.Second
)

// resuming follows one resumable command over any number of connections.
type resuming struct {
	*attached
	client  *Client
	sandbox string
	started func(string)
	id      string
	grace   time.Duration // how long the server can be out of reach
	alive   time.Time     // when the server was last reached
	res     hutch.ExecResult
	final   error // how the command ended, from the server
	ended   bool
}

// execResumable runs a resumable command. When a connection breaks, it connects again.
func (c *Client) execResumable(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	first := stream.Command{ExecRequest: req}
	if req.Stdin != nil {
		var err error
		if first.Binary, err = io.ReadAll(io.LimitReader(req.Stdin, stream.MaxRequest)); err != nil {
			return hutch.ExecResult{}, err
		}
	}
	r := c.resuming(sandbox, out, req.Started)
	return r.run(ctx, socketAt("Exec", sandbox), first)
}

// ResumeExec implements hutch.Service. When a connection breaks, it connects again.
func (c *Client) ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if err := hutch.CheckCursor(cursor); err != nil {
		return hutch.ExecResult{}, err
	}
	r := c.resuming(sandbox, out, nil)
	r.id, r.cursor = exec, cursor
	return r.run(ctx, r.again(), nil)
}

// CancelExec implements hutch.Service.
func (c *Client) CancelExec(ctx context.Context, sandbox, exec string) error {
	_, err := call[struct{}](ctx, c, at("CancelExec", sandbox, exec), nil)
	return err
}

func (c *Client) resuming(sandbox string, out func(hutch.Output) error, started func(string)) *resuming {
	r := &resuming{client: c, sandbox: sandbox, started: started, grace: hutch.ExecGrace}
	r.attached = &attached{out: out, note: func(_ *attached, b []byte) (bool, error) { return r.take(b) }}
	return r
}

// again returns the endpoint that resumes the command.
func (r *resuming) again() endpoint {
	return at("ResumeExec", r.sandbox, r.id).with(url.Values{"cursor": {strconv.FormatInt(r.cursor, 10)}})
}

// run follows the command to its end. It gives up when no connection succeeds within the grace period: the command
// has been killed by then.
func (r *resuming) run(ctx context.Context, to endpoint, first any) (hutch.ExecResult, error) {
	pause := firstPause
	r.alive = time.Now()
	for {
		before := r.cursor
		err := r.connect(ctx, to, first)
		switch {
		case r.err != nil:
			return hutch.ExecResult{}, r.err // the caller's error
		case r.ended:
			return r.res, r.final
		case r.cursor > before || first != nil:
			pause = firstPause
		}
		if r.id == "" || ctx.Err() != nil || !errors.Is(err, hutch.Unavailable) || time.Since(r.alive) > r.grace {
			return hutch.ExecResult{}, err
		}
		if err := delay.Wait(ctx, pause); err != nil {
			return hutch.ExecResult{}, err
		}
		pause = min(2*pause, maxPause)
		to, first = r.again(), nil
	}
}

// connect reads from one connection as long as it lasts.
func (r *resuming) connect(ctx context.Context, to endpoint, first any) error {
	conn, err := r.client.dial(ctx, to)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	defer func() { r.alive = time.Now() }()
	defer context.AfterFunc(ctx, func() { conn.CloseNow() })()
	r.conn, r.stop = conn, func(error) { conn.CloseNow() }
	if first != nil {
		if err := r.begin(first); err != nil {
			return r.client.fault(ctx, err)
		}
	}
	if err := r.receive(); err != nil && !r.ended {
		return r.client.fault(ctx, err)
	}
	return nil
}

// take handles a text message.
func (r *resuming) take(b []byte) (ended bool, err error) {
	var n stream.Note
	if err := json.Unmarshal(b, &n); err != nil {
		return false, err
	}
	switch {
	case n.Exec != "":
		r.id = n.Exec
		if r.started != nil {
			r.started(r.id)
		}
	case n.Result != nil:
		r.res, r.ended = *n.Result, true
	case n.Error != nil:
		r.res, r.final = partial(*n.Error)
		r.ended = true
	}
	return r.ended, nil
}

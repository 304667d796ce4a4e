package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// CreateContext implements hutch.Service.
func (c *Client) CreateContext(ctx context.Context, sandbox string, req hutch.ContextRequest) (hutch.CodeContext, error) {
	if err := checkText("", req.Dir, req.Env); err != nil {
		return hutch.CodeContext{}, err
	}
	return call[hutch.CodeContext](ctx, c, at("CreateContext", sandbox).check(req.Check()), req)
}

// Contexts implements hutch.Service.
func (c *Client) Contexts(ctx context.Context, sandbox string) ([]hutch.CodeContext, error) {
	return call[[]hutch.CodeContext](ctx, c, at("Contexts", sandbox), nil)
}

// DeleteContext implements hutch.Service.
func (c *Client) DeleteContext(ctx context.Context, sandbox, id string) error {
	_, err := call[struct{}](ctx, c, at("DeleteContext", sandbox, id), nil)
	return err
}

// Interrupt implements hutch.Service.
func (c *Client) Interrupt(ctx context.Context, sandbox, id string) error {
	_, err := call[struct{}](ctx, c, at("Interrupt", sandbox, id), nil)
	return err
}

// RunCode implements hutch.Service. A run with stdin has its own connection, which carries the input while the code
// runs.
func (c *Client) RunCode(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (res hutch.RunResult, err error) {
	if err := cmp.Or(req.Check(), checkText(req.Code, req.Dir, req.Env)); err != nil {
		return hutch.RunResult{}, err
	}
	if req.StreamOnly { // 1 byte is the least: the server always keeps something
		req.MaxOutput = 1
		defer func() { res.Stdout, res.Stderr = nil, nil }()
	}
	switch {
	case req.Stdin != nil:
		return c.converse(ctx, sandbox, req, out)
	case out == nil:
		return call[hutch.RunResult](ctx, c, at("RunCode", sandbox), req)
	}
	resp, err := c.do(ctx, at("RunCode", sandbox), req, "text/event-stream")
	if err != nil {
		return hutch.RunResult{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return hutch.RunResult{}, c.refusal(ctx, resp).Err()
	}
	run := &run{out: out}
	for r := bufio.NewReader(resp.Body); !run.ended; {
		event, data, err := next(r)
		if err != nil {
			return hutch.RunResult{}, c.fault(ctx, err)
		}
		if err := run.take(event, data); err != nil {
			return run.result, err
		}
	}
	return run.result, nil
}

// converse runs code over a WebSocket.
func (c *Client) converse(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (res hutch.RunResult, err error) {
	if out == nil {
		out = func(hutch.RunEvent) error { return nil }
	}
	output := func(o hutch.Output) error { return out(hutch.RunEvent{Output: &o}) }
	err = c.attach(ctx, socketAt("RunCode", sandbox), stream.Run{RunRequest: req, Open: true}, req.Stdin, output, func(a *attached, b []byte) (bool, error) {
		var n stream.RunNote
		if err := json.Unmarshal(b, &n); err != nil {
			return false, err
		}
		switch {
		case n.End != nil:
			res = *n.End
			return true, nil
		case n.Error != nil:
			return true, n.Error.Err()
		case n.Stdin > 0:
			a.grant(n.Stdin)
		case n.Result != nil || n.Exception != nil || n.Input != nil:
			a.hand(func() error { return out(hutch.RunEvent{Result: n.Result, Error: n.Exception, Input: n.Input}) })
		}
		return false, nil
	})
	return res, err
}

// run collects the events of a run.
type run struct {
	out    func(hutch.RunEvent) error
	result hutch.RunResult
	ended  bool
}

// take handles one event.
func (r *run) take(event string, data []byte) error {
	switch event {
	case string(hutch.Stdout), string(hutch.Stderr):
		var p stream.Piece
		if err := json.Unmarshal(data, &p); err != nil {
			return err
		}
		o, err := p.Output()
		if err != nil {
			return err
		}
		return r.out(hutch.RunEvent{Output: &o})
	case "result":
		var v hutch.CodeResult
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		return r.out(hutch.RunEvent{Result: &v})
	case "input":
		var in hutch.InputRequest
		if err := json.Unmarshal(data, &in); err != nil {
			return err
		}
		return r.out(hutch.RunEvent{Input: &in})
	case "exception":
		var e hutch.CodeError
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		return r.out(hutch.RunEvent{Error: &e})
	case "end":
		r.ended = true
		return json.Unmarshal(data, &r.result)
	case "error":
		return problem.Read(http.StatusInternalServerError, data).Err()
	}
	return nil // a newer server sent an unknown event
}

// Context is a handle on a code context: an interpreter that keeps its state
// from one run to the next.
type Context struct {
	// ID names the context within its sandbox.
	ID      string
	sandbox *Sandbox
}

// Interpreter returns a handle on the code context that the request names, and creates it if it is missing; without
// an id, it creates a new one.
func (s *Sandbox) Interpreter(ctx context.Context, req hutch.ContextRequest) (*Context, error) {
	c, err := s.client.CreateContext(ctx, s.ID, req)
	if err != nil {
		return nil, err
	}
	return &Context{ID: c.ID, sandbox: s}, nil
}

// Contexts lists the code contexts, oldest first.
func (s *Sandbox) Contexts(ctx context.Context) ([]hutch.CodeContext, error) {
	return s.client.Contexts(ctx, s.ID)
}

// Run runs code and waits for it.
func (c *Context) Run(ctx context.Context, code string) (hutch.RunResult, error) {
	return c.Stream(ctx, hutch.RunRequest{Code: code}, nil)
}

// Stream runs code as [hutch.Contexts] describes; out gets output and results as they arrive.
func (c *Context) Stream(ctx context.Context, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	req.ContextID = c.ID
	return c.sandbox.client.RunCode(ctx, c.sandbox.ID, req, out)
}

// Interrupt ends the current run, and keeps the state.
func (c *Context) Interrupt(ctx context.Context) error {
	return c.sandbox.client.Interrupt(ctx, c.sandbox.ID, c.ID)
}

// Delete ends the context and everything it started.
func (c *Context) Delete(ctx context.Context) error {
	return c.sandbox.client.DeleteContext(ctx, c.sandbox.ID, c.ID)
}

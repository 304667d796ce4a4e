package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"hutch"
)

// Input writes to a detached process.
type Input struct {
	Process string `json:"process"`
	End     bool   `json:"end,omitempty"` // ends the process's stdin after this input
}

// Resize changes the size of a process's terminal.
type Resize struct {
	Process string     `json:"process"`
	Size    hutch.Size `json:"size"`
}

// Wait waits for a detached process: until it ends or, with Port, its server answers or, with Healthy, it is healthy.
type Wait struct {
	Process string `json:"process"`
	Port    int    `json:"port,omitempty"`
	Path    string `json:"path,omitempty"`   // path for an HTTP request
	Status  int    `json:"status,omitempty"` // 0 is any from 200 to 399
	Healthy bool   `json:"healthy,omitempty"`
}

// Waited answers a wait.
type Waited struct {
	Met bool `json:"met"` // the server answers, or the process is healthy
}

// Cleaned answers a clean.
type Cleaned struct {
	Removed int `json:"removed"`
}

func (c *Cleaned) UnmarshalJSON(b []byte) error {
	type plain Cleaned
	if err := json.Unmarshal(b, (*plain)(c)); err != nil {
		return err
	}
	if c.Removed < 0 || c.Removed > maxProcesses {
		return fmt.Errorf("%d processes removed", c.Removed)
	}
	return nil
}

// Input writes everything that r returns to the input of a detached process.
func (c *Client) Input(ctx context.Context, in Input, r io.Reader) error {
	return c.do(ctx, Request{Op: "input", Input: &in}, func(cn *conn, t Type, payload []byte) error {
		if t != TypeStarted {
			return broken(fmt.Errorf("frame of type %q instead of started", t))
		}
		s := &stream{conn: cn, room: make(chan int64, 1)}
		return s.fed(r, StdinWindow, s.taken)
	})
}

// Resize changes the size of a detached process's terminal.
func (c *Client) Resize(ctx context.Context, r Resize) error {
	_, err := call[struct{}](ctx, c, Request{Op: "resize", Resize: &r})
	return err
}

// Clean forgets the detached processes that have ended.
func (c *Client) Clean(ctx context.Context) (int, error) {
	cleaned, err := call[Cleaned](ctx, c, Request{Op: "clean"})
	return cleaned.Removed, err
}

// Park makes the agent close all its connections to the host until its instance has been saved; the instance must not
// be used meanwhile. If the instance is not saved, the agent listens again after some minutes.
func (c *Client) Park(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, Request{Op: "park"})
	return err
}

// Wait waits as long as ctx allows. Port zero waits for the end of the process.
func (c *Client) Wait(ctx context.Context, w Wait) (met bool, err error) {
	err = c.do(ctx, Request{Op: "wait", Wait: &w}, func(cn *conn, t Type, _ []byte) error {
		if t != TypeStarted {
			return broken(fmt.Errorf("frame of type %q instead of started", t))
		}
		t, payload, err := cn.r.Next()
		switch {
		case err != nil:
			return err
		case t == TypeError:
			return refusal(payload)
		case t != TypeReply:
			return broken(fmt.Errorf("frame of type %q in answer to wait", t))
		}
		var answer Waited
		if err := json.Unmarshal(payload, &answer); err != nil {
			return broken(err)
		}
		met = answer.Met
		return nil
	})
	return met, err
}

// taken reads the frames that report how much input was written, until the reply. The reply arrives after everything
// was sent, so the connection is free when the sender has returned.
func (s *stream) taken(sent <-chan struct{}) error {
	for {
		t, payload, err := s.conn.r.Next()
		switch {
		case err != nil:
			return err
		case t == TypeError:
			return refusal(payload)
		case t == TypeReply:
			select {
			case <-sent:
			case <-time.After(replyTime): // the agent violates the protocol
			}
			return nil
		case t != TypeWindow:
			return fmt.Errorf("frame of type %q in answer to input", t)
		}
		if err := s.window(payload); err != nil {
			return err
		}
	}
}

package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
	"hutch/internal/window"
)

var errCancelled = hutch.Errorf(hutch.Conflict, "the command was cancelled, and killed")

// socket runs one command for the client at the other end of a WebSocket.
// Package stream says what is sent.
func (h *Handler) socket(w http.ResponseWriter, r *http.Request) {
	if !wantsSocket(r) {
		h.fail(w, r, hutch.Errorf(hutch.Invalid, "GET of exec opens a WebSocket: run a command with POST, or connect with a WebSocket client"))
		return
	}
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // answered already
	}
	// r's context ends the command, not the connection: that is still needed
	// to say how it ended.
	s := &socket{conn: c, ctx: context.WithoutCancel(r.Context()), stall: h.stall}
	defer s.tasks.Wait()
	defer c.CloseNow()
	s.finish(h.serve(s, r))
}

func wantsSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func (h *Handler) serve(s *socket, r *http.Request) stream.Note {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	req, err := s.request()
	if err == nil {
		s.tasks.Go(func() { s.receive(cancel) })
		s.tasks.Go(func() { s.ping(ctx, cancel) })
		var res hutch.ExecResult
		if res, err = h.svc.Exec(ctx, r.PathValue("id"), req, s.output); err == nil {
			return stream.Note{Result: &res}
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause // which names the fault, if there was one
		}
		d := h.partial(r, res, err)
		return stream.Note{Error: &d}
	}
	d := problem.New(err)
	return stream.Note{Error: &d}
}

// socket is the server's end of the connection of one command.
type socket struct {
	conn  *websocket.Conn
	ctx   context.Context
	stall time.Duration
	tasks sync.WaitGroup
	stdin *window.Queue // nil when the command came with all its input
	buf   []byte        // of output
}

// request reads the first message.
func (s *socket) request() (hutch.ExecRequest, error) {
	s.conn.SetReadLimit(stream.MaxRequest)
	ctx, cancel := context.WithTimeout(s.ctx, bodyTime)
	defer cancel()
	typ, b, err := s.conn.Read(ctx)
	if err != nil {
		return hutch.ExecRequest{}, errGone
	}
	if typ != websocket.MessageText {
		return hutch.ExecRequest{}, hutch.Errorf(hutch.Invalid, "the first message must be text, the command in JSON")
	}
	var cmd stream.Command
	if err := decode(b, &cmd); err != nil {
		return hutch.ExecRequest{}, err
	}
	req := cmd.Request()
	if cmd.Open {
		s.stdin = window.NewQueue(stream.StdinWindow, func(taken int64) { s.tell(stream.Note{Stdin: taken}) })
		req.Stdin = s.stdin
	}
	return req, cmd.Check()
}

// receive reads until the connection ends, which ends the command too.
func (s *socket) receive(cancel context.CancelCauseFunc) {
	err := s.messages(cancel)
	cancel(err) // first: the program is not to take this for the end of its input
	if s.stdin != nil {
		s.stdin.End(err)
	}
}

func (s *socket) messages(cancel context.CancelCauseFunc) error {
	for {
		typ, b, err := s.conn.Read(s.ctx)
		if err != nil {
			return errGone
		}
		if typ == websocket.MessageBinary {
			if s.stdin == nil || !s.stdin.Add(b) {
				return hutch.Errorf(hutch.Invalid, "more stdin was sent than the command takes: ask for openStdin, and stay within %d bytes of what it has taken", stream.StdinWindow)
			}
			continue
		}
		var c stream.Control
		if err := decode(b, &c); err != nil {
			return err
		}
		if c.EOF && s.stdin != nil {
			s.stdin.End(io.EOF)
		}
		if c.Cancel {
			cancel(errCancelled)
		}
	}
}

// ping keeps the connection open, and finds out when it is dead.
func (s *socket) ping(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(pingTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A client whose output function is slow does not answer meanwhile.
		ctx, done := context.WithTimeout(s.ctx, s.stall)
		err := s.conn.Ping(ctx)
		done()
		if err != nil {
			cancel(errGone)
			return
		}
	}
}

func (s *socket) output(o hutch.Output) error {
	s.buf = stream.AppendOutput(s.buf[:0], o)
	if s.write(websocket.MessageBinary, s.buf) != nil {
		return errGone
	}
	return nil
}

// tell sends a text message.
func (s *socket) tell(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(websocket.MessageText, b)
}

func (s *socket) write(typ websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.stall)
	defer cancel()
	return s.conn.Write(ctx, typ, b)
}

// finish sends the last message.
func (s *socket) finish(v any) {
	if s.tell(v) == nil {
		s.conn.Close(websocket.StatusNormalClosure, "")
	}
}

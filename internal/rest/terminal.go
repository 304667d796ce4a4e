package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// terminal shows a process to the client at the other end of a WebSocket, and writes the client's input to it.
// Package stream specifies the messages.
func (h *Handler) terminal(w http.ResponseWriter, r *http.Request) {
	req, pace, err := terminalRequest(r)
	if err == nil && !wantsSocket(r) {
		err = hutch.Errorf(hutch.Invalid, "GET of terminal opens a WebSocket: read the output at logs, or connect with a WebSocket client")
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.look(w, r, req, func(ctx context.Context, s *socket, cancel context.CancelCauseFunc) (any, error) {
		return newViewer(s, h.svc, req, pace).serve(ctx, cancel)
	})
}

// terminalRequest reads the parameters of a viewer.
func terminalRequest(r *http.Request) (hutch.LogsRequest, pace, error) {
	req := hutch.LogsRequest{SandboxID: r.PathValue("id"), ProcessID: r.PathValue("process"), Follow: true}
	var p pace
	q, err := query(r, "cursor", "window", "catchUp")
	if err != nil {
		return req, p, err
	}
	if text := q.Get("window"); text != "" {
		if p.window, err = strconv.Atoi(text); err != nil || p.window < stream.MinWindow || p.window > stream.MaxWindow {
			return req, p, hutch.Errorf(hutch.Invalid, "the window is %.80q: give %d to %d bytes, or leave it out and take all that comes", text, stream.MinWindow, stream.MaxWindow).Naming(hutch.AboutField, "window")
		}
	}
	if p.catchUp, err = flag(q, "catchUp"); err != nil {
		return req, p, err
	}
	if p.catchUp && p.window == 0 {
		return req, p, hutch.Errorf(hutch.Invalid, "catchUp needs a window: without one, the server does not know what the client has still to read").Naming(hutch.AboutField, "catchUp")
	}
	req.Cursor, err = cursorOf(r, q)
	return req, p, err
}

// look shows a process to the client at the other end of a WebSocket. show returns
// the last message; look waits for the tasks that show starts.
//
// Each viewer reads the process's log separately, so no viewer waits for another
// and the program waits for none.
func (h *Handler) look(w http.ResponseWriter, r *http.Request, req hutch.LogsRequest, show func(context.Context, *socket, context.CancelCauseFunc) (any, error)) {
	if _, err := h.svc.Process(r.Context(), req.SandboxID, req.ProcessID); err != nil {
		h.fail(w, r, err)
		return
	}
	s := h.accept(w, r)
	if s == nil {
		return
	}
	defer s.close()
	ctx, cancel := s.contextWithPing(r)
	defer cancel(nil)
	last, err := show(ctx, s, cancel)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		d := h.describe(r, err)
		last = stream.Note{Error: &d}
	}
	s.finish(last)
}

// viewer is the server's end of a terminal viewer's connection.
type viewer struct {
	*socket
	svc  hutch.Service
	req  hutch.LogsRequest // Cursor is the position of the next byte for the client
	pace pace
}

func newViewer(s *socket, svc hutch.Service, req hutch.LogsRequest, p pace) *viewer {
	p.taken, p.interrupted = make(chan int64, 1), make(chan time.Time, 1)
	return &viewer{s, svc, req, p}
}

// serve serves the client, and returns the last message.
func (v *viewer) serve(ctx context.Context, cancel context.CancelCauseFunc) (any, error) {
	keys, typed := io.Pipe()
	defer keys.Close()
	v.tasks.Go(func() {
		write := sync.OnceFunc(func() { v.tasks.Go(func() { v.write(ctx, keys) }) })
		err := v.receive(ctx, typed, write)
		cancel(err)
		typed.CloseWithError(err)
	})
	return v.show(ctx)
}

// watch is serve for a client that can only watch. It returns the last message.
func (v *viewer) watch(ctx context.Context, cancel context.CancelCauseFunc) (any, error) {
	v.tasks.Go(func() { cancel(v.acknowledgements()) })
	p, err := v.svc.Process(ctx, v.req.SandboxID, v.req.ProcessID)
	if err != nil {
		return nil, err
	}
	v.sendText(stream.Screen{Size: p.Terminal})
	last, err := v.show(ctx)
	if s, ok := last.(stream.Screen); ok && s.Exit != nil { // a viewer gets only this part of the record
		s.Exit = &hutch.Process{ID: s.Exit.ID, Status: s.Exit.Status, ExitCode: s.Exit.ExitCode, Signal: s.Exit.Signal}
		last = s
	}
	return last, err
}

// show sends the output until the process ends.
func (v *viewer) show(ctx context.Context) (any, error) {
	newest, err := v.newest(ctx)
	if err != nil {
		return nil, err
	}
	if v.pace.catchUp {
		v.req.Cursor = max(v.req.Cursor, newest-mostReplayed)
	}
	for told := int64(-1); ; {
		last, err := v.svc.Logs(ctx, v.req, func(o hutch.Output) error {
			begin := o.Cursor - int64(len(o.Data))
			if told != begin && v.sendText(stream.Screen{Cursor: &begin, Lost: o.Lost, Replayed: newest}) != nil {
				return errGone
			}
			for len(o.Data) > 0 {
				n, err := v.room(ctx, len(o.Data))
				if err != nil {
					return err
				}
				if v.socket.write(websocket.MessageBinary, o.Data[:n]) != nil {
					return errGone
				}
				v.pace.sent += int64(n)
				o.Data = o.Data[n:]
				v.req.Cursor = max(v.req.Cursor, o.Cursor-int64(len(o.Data))) // output after this position is skipped
			}
			told, v.req.Cursor = o.Cursor, o.Cursor
			return nil
		})
		if skip, ok := errors.AsType[skipped](err); ok {
			told, v.req.Cursor = -1, skip.to
			continue
		}
		if err != nil {
			return nil, err
		}
		p, err := v.svc.Process(ctx, v.req.SandboxID, v.req.ProcessID)
		return stream.Screen{Cursor: &last, Exit: &p}, err
	}
}

// newest returns the position after all output of the process. It is part of watching, so it does not count towards a
// limit.
func (v *viewer) newest(ctx context.Context) (int64, error) {
	return v.svc.Logs(caller.Unmetered(ctx), hutch.LogsRequest{SandboxID: v.req.SandboxID, ProcessID: v.req.ProcessID, Cursor: math.MaxInt64}, nil)
}

// write passes the client's input to the process. If that fails, the client gets the error and continues to see
// output.
func (v *viewer) write(ctx context.Context, keys *io.PipeReader) {
	err := v.svc.Input(ctx, v.req.SandboxID, v.req.ProcessID, keys, false)
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.ErrClosedPipe) {
		d := problem.New(err)
		v.sendText(stream.Screen{Input: &d})
	}
	io.Copy(io.Discard, keys)
}

// receive reads the client's messages until the connection ends, and calls write before the first input. It stops
// reading while the program has too much unread input.
func (v *viewer) receive(ctx context.Context, typed *io.PipeWriter, write func()) error {
	v.conn.SetReadLimit(stream.StdinWindow)
	for {
		typ, b, err := v.conn.Read(v.ctx)
		if err != nil {
			return errGone
		}
		if typ == websocket.MessageBinary {
			write()
			if _, err := typed.Write(b); err != nil {
				return errGone
			}
			if bytes.ContainsAny(b, interrupts) {
				v.pace.interrupt()
			}
			continue
		}
		var view stream.View
		if err := decode(b, &view); err != nil {
			return err
		}
		if view.Taken != nil {
			v.pace.take(*view.Taken)
			continue
		}
		if err := v.svc.Resize(ctx, v.req.SandboxID, v.req.ProcessID, view.Size); err != nil && ctx.Err() == nil {
			d := problem.New(err)
			v.sendText(stream.Screen{Input: &d})
		}
	}
}

// acknowledgements reads the messages of a client that can only watch, until the connection ends. Any other message
// ends the connection, because the server does not trust the client's page to send nothing.
func (v *viewer) acknowledgements() error {
	v.conn.SetReadLimit(maxAcknowledgement)
	for {
		typ, b, err := v.conn.Read(v.ctx)
		if err != nil {
			return errGone
		}
		var view stream.View
		if typ != websocket.MessageText || decode(b, &view) != nil || view.Taken == nil || view.Size != (hutch.Size{}) {
			return hutch.Errorf(hutch.Denied, "this terminal can be watched by the link, and nothing can be sent to it")
		}
		v.pace.take(*view.Taken)
	}
}

const maxAcknowledgement = 1 << 10

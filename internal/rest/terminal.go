package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// terminal shows a process to the client at the other end of a WebSocket, and writes the client's input to it.
// Package stream specifies the messages.
func (h *Handler) terminal(w http.ResponseWriter, r *http.Request) {
	req, err := logsRequest(r)
	if err == nil && !wantsSocket(r) {
		err = hutch.Errorf(hutch.Invalid, "GET of terminal opens a WebSocket: read the output at logs, or connect with a WebSocket client")
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	req.Follow = true
	h.look(w, r, req, func(ctx context.Context, s *socket, cancel context.CancelCauseFunc) (any, error) {
		return (&viewer{s, h.svc}).serve(ctx, cancel, req)
	})
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
	ctx, cancel := s.attended(r)
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
	svc hutch.Service
}

// serve returns the last message.
func (v *viewer) serve(ctx context.Context, cancel context.CancelCauseFunc, req hutch.LogsRequest) (any, error) {
	keys, typed := io.Pipe()
	defer keys.Close()
	v.tasks.Go(func() {
		write := sync.OnceFunc(func() { v.tasks.Go(func() { v.write(ctx, req, keys) }) })
		err := v.receive(ctx, req, typed, write)
		cancel(err)
		typed.CloseWithError(err)
	})
	cursor := int64(-1)
	last, err := v.svc.Logs(ctx, req, func(o hutch.Output) error {
		begin := o.Cursor - int64(len(o.Data))
		if cursor != begin && v.tell(stream.Screen{Cursor: &begin, Lost: o.Lost}) != nil {
			return errGone
		}
		cursor = o.Cursor
		if v.socket.write(websocket.MessageBinary, o.Data) != nil {
			return errGone
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p, err := v.svc.Process(ctx, req.SandboxID, req.ProcessID)
	return stream.Screen{Cursor: &last, Exit: &p}, err
}

// write passes the client's input to the process. If that fails, the client gets the error and continues to see
// output.
func (v *viewer) write(ctx context.Context, req hutch.LogsRequest, keys *io.PipeReader) {
	err := v.svc.Input(ctx, req.SandboxID, req.ProcessID, keys, false)
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.ErrClosedPipe) {
		d := problem.New(err)
		v.tell(stream.Screen{Input: &d})
	}
	io.Copy(io.Discard, keys)
}

// receive reads the client's messages until the connection ends, and calls write before the first input. It stops
// reading while the program leaves too much unread.
func (v *viewer) receive(ctx context.Context, req hutch.LogsRequest, typed *io.PipeWriter, write func()) error {
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
			continue
		}
		var size hutch.Size
		if err := decode(b, &size); err != nil {
			return err
		}
		if err := v.svc.Resize(ctx, req.SandboxID, req.ProcessID, size); err != nil && ctx.Err() == nil {
			d := problem.New(err)
			v.tell(stream.Screen{Input: &d})
		}
	}
}

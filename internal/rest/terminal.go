package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// terminal shows a process to the client at the other end of a WebSocket, and
// writes to it what the client sends. Package stream says what is sent.
//
// Every viewer follows the process's log on its own, so none waits for another
// and the program waits for none.
func (h *Handler) terminal(w http.ResponseWriter, r *http.Request) {
	req, err := logsRequest(r)
	if err == nil && !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		err = hutch.Errorf(hutch.Invalid, "GET of terminal opens a WebSocket: read the output at logs, or connect with a WebSocket client")
	}
	var p hutch.Process
	if err == nil {
		p, err = h.svc.Process(r.Context(), req.SandboxID, req.ProcessID)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // answered already
	}
	req.Follow = true
	v := &viewer{
		socket:  socket{conn: c, ctx: context.WithoutCancel(r.Context()), stall: h.stall},
		svc:     h.svc,
		process: p,
	}
	defer v.tasks.Wait()
	defer c.CloseNow()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	end, err := v.serve(ctx, cancel, req)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		d := h.describe(r, err)
		end = stream.Screen{Error: &d}
	}
	if v.tell(end) == nil {
		c.Close(websocket.StatusNormalClosure, "")
	}
}

// viewer is the server's end of the connection of one who looks at a process.
type viewer struct {
	socket
	svc     hutch.Service
	process hutch.Process
}

// serve returns the last message.
func (v *viewer) serve(ctx context.Context, cancel context.CancelCauseFunc, req hutch.LogsRequest) (stream.Screen, error) {
	keys, typed := io.Pipe()
	defer keys.Close()
	v.tasks.Go(func() {
		write := sync.OnceFunc(func() { v.tasks.Go(func() { v.write(ctx, keys) }) })
		err := v.receive(ctx, typed, write)
		cancel(err)
		typed.CloseWithError(err)
	})
	v.tasks.Go(func() { v.ping(ctx, cancel) })
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
		return stream.Screen{}, err
	}
	p, err := v.svc.Process(ctx, req.SandboxID, req.ProcessID)
	return stream.Screen{Cursor: &last, Exit: &p}, err
}

// write hands what the client types to the process. What cannot be written is
// told, and the client goes on looking.
func (v *viewer) write(ctx context.Context, keys *io.PipeReader) {
	err := v.svc.Input(ctx, v.process.SandboxID, v.process.ID, keys, false)
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.ErrClosedPipe) {
		d := problem.New(err)
		v.tell(stream.Screen{Input: &d})
	}
	io.Copy(io.Discard, keys)
}

// receive reads what the client sends until the connection ends, and calls
// write before it has something to write. It does not read on while the program
// leaves too much unread.
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
			continue
		}
		var size hutch.Size
		if err := decode(b, &size); err != nil {
			return err
		}
		if err := v.svc.Resize(ctx, v.process.SandboxID, v.process.ID, size); err != nil && ctx.Err() == nil {
			d := problem.New(err)
			v.tell(stream.Screen{Input: &d})
		}
	}
}

func (v *viewer) tell(s stream.Screen) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return v.socket.write(websocket.MessageText, b)
}

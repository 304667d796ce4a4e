package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/flowcontrol"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

var errCancelled = hutch.Errorf(hutch.Conflict, "the command was cancelled, and stopped").Because(context.Canceled)

// socket runs one command for the client at the other end of a WebSocket. Package stream specifies the messages.
func (h *Handler) socket(w http.ResponseWriter, r *http.Request) {
	h.attend(w, r, h.serveCommand)
}

// attend opens a WebSocket, runs serve, and then sends the message that serve returns as the last one.
func (h *Handler) attend(w http.ResponseWriter, r *http.Request, serve func(*socket, *http.Request) any) {
	if !wantsSocket(r) {
		h.fail(w, r, hutch.Errorf(hutch.Invalid, "GET of %s opens a WebSocket: use POST, or connect with a WebSocket client", path.Base(r.URL.Path)))
		return
	}
	s := h.accept(w, r)
	if s == nil {
		return
	}
	defer s.close()
	s.finish(serve(s, r))
}

// accept opens a WebSocket. If that fails, it answers with the error and returns nil.
func (h *Handler) accept(w http.ResponseWriter, r *http.Request) *socket {
	c, err := websocket.Accept(w, r, &h.sockets)
	if err != nil {
		return nil
	}
	// r's context ends the command but not the connection, which is still needed to report how the command ended.
	ctx, cut := context.WithCancel(context.WithoutCancel(r.Context()))
	return &socket{conn: c, ctx: ctx, stall: h.stall, forget: context.AfterFunc(h.cut, cut)}
}

// socketOptions returns the options of all WebSockets. A browser sends its token as a subprotocol (see package
// credential), and closes the connection if the server selects none of the offered subprotocols.
func socketOptions(origins []string) websocket.AcceptOptions {
	o := websocket.AcceptOptions{Subprotocols: []string{"hutch"}}
	literal := strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`)
	for _, origin := range origins {
		o.OriginPatterns = append(o.OriginPatterns, literal.Replace(origin))
	}
	return o
}

func wantsSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func (h *Handler) serveCommand(s *socket, r *http.Request) any {
	req, err := s.command()
	if err != nil {
		d := problem.New(err)
		return stream.Note{Error: &d}
	}
	req.Started = func(id string) { s.sendText(stream.Note{Exec: id}) }
	return h.serveExec(s, r, func(ctx context.Context) (hutch.ExecResult, error) {
		return h.svc.Exec(ctx, r.PathValue("id"), req, s.output)
	})
}

// serveExec runs or resumes a command, and returns the last message.
func (h *Handler) serveExec(s *socket, r *http.Request, run func(context.Context) (hutch.ExecResult, error)) any {
	ctx, cancel := s.begin(r)
	defer cancel(nil)
	res, err := run(ctx)
	if err == nil {
		return stream.Note{Result: &res}
	}
	d := h.partial(r, res, named(ctx, err))
	return stream.Note{Error: &d}
}

// named returns the cause of ctx's end if that cause has a kind, and otherwise err.
func named(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// socket is the server's end of the connection of one command.
type socket struct {
	conn  *websocket.Conn
	ctx   context.Context
	stall time.Duration
	// forget stops waiting for the end of the handler.
	forget func() bool
	tasks  sync.WaitGroup
	stdin  *flowcontrol.Queue // nil if the command came with all its input
	buf    []byte             // buffer of output
}

func (s *socket) close() {
	s.forget()
	s.conn.CloseNow()
	s.tasks.Wait()
}

// command reads the first message, which is a command.
func (s *socket) command() (hutch.ExecRequest, error) {
	var cmd stream.Command
	if err := s.first(&cmd); err != nil {
		return hutch.ExecRequest{}, err
	}
	req := cmd.Request()
	if cmd.Open {
		req.Stdin = s.openStdin()
	}
	return req, cmd.Check()
}

// first reads the first message.
func (s *socket) first(v any) error {
	s.conn.SetReadLimit(stream.MaxRequest)
	ctx, cancel := context.WithTimeout(s.ctx, bodyTime)
	defer cancel()
	typ, b, err := s.conn.Read(ctx)
	if err != nil {
		return errGone
	}
	if typ != websocket.MessageText {
		return hutch.Errorf(hutch.Invalid, "the first message must be text, the request in JSON")
	}
	return decode(b, v)
}

// openStdin returns a reader of the input in later messages.
func (s *socket) openStdin() io.Reader {
	s.stdin = flowcontrol.NewQueue(stream.StdinWindow, func(taken int64) { s.sendText(stream.Note{Stdin: taken}) })
	return s.stdin
}

// begin starts to read further messages while the request runs. The context ends when the client cancels or
// disconnects.
func (s *socket) begin(r *http.Request) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := s.contextWithPing(r)
	s.tasks.Go(func() { s.receive(cancel) })
	return ctx, cancel
}

// contextWithPing returns the request's context, which also ends when the client does not answer pings.
func (s *socket) contextWithPing(r *http.Request) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	s.tasks.Go(func() { s.ping(ctx, cancel) })
	return ctx, cancel
}

// receive reads messages until the connection ends, and then ends the command.
func (s *socket) receive(cancel context.CancelCauseFunc) {
	err := s.messages(cancel)
	cancel(err) // cancel first, so that the program does not see a normal end of input
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
				return hutch.Errorf(hutch.Invalid, "more stdin was sent than is taken: ask for openStdin, and stay within %d bytes of what it has taken", stream.StdinWindow)
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

// ping keeps the connection open, and detects when it is dead.
func (s *socket) ping(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(pingTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A client does not answer pings while its output function runs, which can be slow.
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

// sendText sends a text message.
func (s *socket) sendText(v any) error {
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
	if s.sendText(v) == nil {
		s.conn.Close(websocket.StatusNormalClosure, "")
	}
}

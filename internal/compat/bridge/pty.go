package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/compat"
)

const (
	maxFrame   = 1 << 20          // bytes of a client's message
	signOff    = 10 * time.Second // time to end a shell whose client has disconnected
	killSignal = 9
)

// terminal is a client's request for a terminal.
type terminal struct {
	size    hutch.Size
	shell   string
	session string // the id of a context, or "" for a shell of this connection only
}

// name returns the process name by which clients of a session find its shell.
func (t terminal) name() string { return "pty " + t.session }

// pty shows a shell to the client of a WebSocket. Binary messages are bytes of the terminal in both directions. Text
// messages are JSON: the client can send {"type":"resize","cols","rows"}, and gets {"type":"ready"} first and
// {"type":"exit","code"} or {"type":"error","message"} last.
func (h *Handler) pty(w http.ResponseWriter, r *http.Request, id string) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		h.refuse(w, r, http.StatusBadRequest, codeRequest, "WebSocket upgrade required")
		return
	}
	t, ok := h.terminal(w, r)
	if !ok {
		return
	}
	var p hutch.Process
	err := compat.OnFirstUse(r.Context(), h.svc, id, func() (err error) {
		p, err = h.shell(r.Context(), id, t)
		return err
	})
	if err != nil {
		h.fail(w, r, err, codeTransport)
		return
	}
	if t.session == "" {
		defer h.end(r.Context(), id, p.ID)
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has sent the answer
	}
	defer conn.CloseNow()
	h.show(r.Context(), &viewer{conn: conn, svc: h.svc, sandbox: id, process: p.ID, stall: h.stall})
}

// terminal reads the parameters of a request, and answers if they are wrong.
func (h *Handler) terminal(w http.ResponseWriter, r *http.Request) (t terminal, ok bool) {
	q := r.URL.Query()
	number := func(name string, usual int) int {
		if v := q.Get(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				return -1
			}
			return n
		}
		return usual
	}
	t = terminal{size: hutch.Size{Columns: number("cols", 80), Rows: number("rows", 24)}, shell: q.Get("shell")}
	if t.size.Columns == -1 || t.size.Rows == -1 {
		h.refuse(w, r, http.StatusBadRequest, codeRequest, "cols and rows must be valid numbers")
		return t, false
	}
	name := r.Header.Get("Session-Id")
	if name == "" {
		name = q.Get("session")
	}
	t.session, ok = h.session(w, r, name)
	return t, ok
}

// shell starts a shell, or returns the session's shell.
func (h *Handler) shell(ctx context.Context, id string, t terminal) (hutch.Process, error) {
	req := hutch.ProcessRequest{Command: hutch.ImageShell, Terminal: &t.size}
	if t.shell != "" {
		req.Command = "exec " + hutch.CommandLine(t.shell)
	}
	if t.session == "" {
		return h.svc.StartProcess(ctx, id, req)
	}
	if p, ok, err := h.shellOf(ctx, id, t); err != nil || ok {
		return p, err
	}
	list, err := h.svc.Contexts(ctx, id)
	if err != nil {
		return hutch.Process{}, err
	}
	if i := slices.IndexFunc(list, func(c hutch.CodeContext) bool { return c.ID == t.session }); i >= 0 {
		req.Dir = list[i].Dir
	}
	req.Name = t.name()
	return h.svc.StartProcess(ctx, id, req)
}

// shellOf finds the live shell of a session.
func (h *Handler) shellOf(ctx context.Context, id string, t terminal) (hutch.Process, bool, error) {
	list, err := h.svc.Processes(ctx, id)
	if err != nil {
		return hutch.Process{}, false, err
	}
	i := slices.IndexFunc(list, func(p hutch.Process) bool { return p.Name == t.name() && p.Status.Live() })
	if i < 0 {
		return hutch.Process{}, false, nil
	}
	return list[i], true, nil
}

// endTerminal ends the shell of a session.
func (h *Handler) endTerminal(ctx context.Context, id, session string) error {
	p, ok, err := h.shellOf(ctx, id, terminal{session: session})
	if err != nil || !ok {
		return err
	}
	return h.svc.Signal(ctx, id, p.ID, killSignal)
}

// end kills a shell whose client has disconnected. The request's context may be done by then.
func (h *Handler) end(ctx context.Context, id, process string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signOff)
	defer cancel()
	h.svc.Signal(ctx, id, process, killSignal) // a shell that has ended needs no signal
}

// show passes output and input until the shell ends or the client leaves.
func (h *Handler) show(ctx context.Context, v *viewer) {
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer v.conn.CloseNow()
	defer cancel(nil)
	if v.send(message{Type: "ready"}) != nil {
		return
	}
	tasks.Go(func() { cancel(v.receive(ctx, &tasks)) })
	_, err := v.svc.Logs(ctx, hutch.LogsRequest{SandboxID: v.sandbox, ProcessID: v.process, Follow: true}, v.output)
	var p hutch.Process
	if err == nil {
		p, err = v.svc.Process(ctx, v.sandbox, v.process)
	}
	last := message{Type: "exit"}
	switch {
	case err != nil:
		last = message{Type: "error", Message: hutch.AsError(err).Message}
	case p.ExitCode != nil:
		last.Code = p.ExitCode
	default:
		last.Code = new(int)
	}
	if v.send(last) == nil {
		v.conn.Close(websocket.StatusNormalClosure, "")
	}
}

// message is a text message, in either direction.
type message struct {
	Type    string `json:"type"`
	Code    *int   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Columns int    `json:"cols,omitempty"`
	Rows    int    `json:"rows,omitempty"`
}

// viewer is the server's end of the connection of one client.
type viewer struct {
	conn             *websocket.Conn
	svc              hutch.Service
	sandbox, process string
	stall            time.Duration
}

var errGone = errors.New("the client has gone")

func (v *viewer) send(m message) error {
	b, _ := json.Marshal(m) // strings and numbers
	return v.write(websocket.MessageText, b)
}

func (v *viewer) output(o hutch.Output) error { return v.write(websocket.MessageBinary, o.Data) }

func (v *viewer) write(typ websocket.MessageType, b []byte) error {
	// Not derived from the request's context, because the last message is sent after that context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), v.stall)
	defer cancel()
	if v.conn.Write(ctx, typ, b) != nil {
		return errGone
	}
	return nil
}

// receive passes the client's input on until the connection ends. It stops reading while the shell leaves too much
// unread.
func (v *viewer) receive(ctx context.Context, tasks *sync.WaitGroup) error {
	v.conn.SetReadLimit(maxFrame)
	keys, typed := io.Pipe()
	defer typed.Close()
	tasks.Go(func() {
		v.svc.Input(ctx, v.sandbox, v.process, keys, false) // an error means that the shell has ended, as the output shows
		io.Copy(io.Discard, keys)                           // the client continues to see output
	})
	for {
		typ, b, err := v.conn.Read(context.Background()) // CloseNow ends it
		if err != nil {
			return errGone
		}
		if typ == websocket.MessageBinary {
			if _, err := typed.Write(b); err != nil {
				return errGone
			}
			continue
		}
		v.resize(ctx, b)
	}
}

// resize changes the size of the terminal. Like the original, it ignores other messages and impossible sizes: clients
// take an error for the end of the terminal.
func (v *viewer) resize(ctx context.Context, b []byte) {
	var m message
	if json.Unmarshal(b, &m) == nil && m.Type == "resize" {
		v.svc.Resize(ctx, v.sandbox, v.process, hutch.Size{Columns: m.Columns, Rows: m.Rows})
	}
}

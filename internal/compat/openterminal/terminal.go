package openterminal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/compat"
)

// A terminal is a background process with a name, so it is listed and ended as any process is. As with the original, it
// ends when the client that is attached to it disconnects.
const (
	maxTerminals = 5           // of a user, at once; a sandbox has ten background processes, and commands are among them
	maxFrame     = 1 << 20     // bytes of a client's message
	replaceAfter = time.Minute // after which a new terminal can replace one without a client
	killSignal   = 9

	terminalName = "open terminal "
)

// Codes with which a WebSocket is closed. Open WebUI's page shows the reasons.
const (
	closeAuth     = 4001 // the first message has no valid token
	closeMissing  = 4004
	closeAttached = 4009 // another client is attached
)

// terminal is a terminal as the API describes it.
type terminal struct {
	ID      string `json:"id"`
	Created string `json:"created_at"`
	PID     int    `json:"pid"`
}

func describeTerminal(p hutch.Process) terminal {
	return terminal{p.ID, p.StartTime.UTC().Format("2006-01-02T15:04:05.000000Z"), p.PID}
}

// isTerminal reports whether a process is a terminal of any chat.
func isTerminal(p hutch.Process) bool { return strings.HasPrefix(p.Name, terminalName) }

// terminalOf returns the name of the terminals of the chat.
func (c *call) terminalOf() string {
	chat := c.r.Header.Get("X-Session-Id")
	if chat == "" {
		return terminalName
	}
	return terminalName + hashed(chat)
}

// terminals returns the live terminals of the user, oldest first.
func (c *call) terminals() ([]hutch.Process, error) {
	list, err := c.svc.Processes(c.ctx, c.sandbox)
	return slices.DeleteFunc(list, func(p hutch.Process) bool { return !isTerminal(p) || !p.Status.Live() }), err
}

func (c *call) createTerminal() (any, error) {
	list, err := c.terminals()
	if err != nil {
		return nil, err
	}
	if len(list) >= maxTerminals {
		if err := c.makeRoom(list); err != nil {
			return nil, err
		}
	}
	p, err := c.svc.StartProcess(c.ctx, c.sandbox, hutch.ProcessRequest{
		Name: c.terminalOf(), Command: hutch.ImageShell, Dir: c.dir(), Terminal: &hutch.Size{Columns: 80, Rows: 24},
	})
	if hutch.KindOf(err) == hutch.Exhausted { // if both limits are reached, the limit of terminals is easier to understand
		if list, listErr := c.terminals(); listErr == nil && len(list) >= maxTerminals {
			return nil, errTerminals
		}
	}
	if err != nil {
		return nil, err
	}
	// Several callers can each have found room for a terminal. All of them see the processes in the same order, which
	// decides whose terminal is kept.
	if list, err = c.terminals(); err == nil && slices.IndexFunc(list, func(o hutch.Process) bool { return o.ID == p.ID }) >= maxTerminals {
		err = errTerminals
	}
	if err != nil {
		c.endTerminal(p.ID)
		return nil, err
	}
	return describeTerminal(p), nil
}

var errTerminals = hutch.Errorf(hutch.Exhausted, "Maximum number of terminal sessions (%d) reached: close one", maxTerminals).With("limit", "terminals")

// makeRoom ends the oldest terminal to which no client is attached. It spares terminals younger than replaceAfter.
func (c *call) makeRoom(list []hutch.Process) error {
	for _, p := range list {
		if time.Since(p.StartTime) > replaceAfter && !c.attached.has(c.key(p.ID)) {
			return c.svc.Signal(c.ctx, c.sandbox, p.ID, killSignal)
		}
	}
	return errTerminals
}

func (c *call) listTerminals() (any, error) {
	list, err := c.terminals()
	if err != nil {
		return nil, err
	}
	all := []terminal{}
	for _, p := range list {
		if p.Name == c.terminalOf() {
			all = append(all, describeTerminal(p))
		}
	}
	return all, nil
}

var errNoSession = hutch.Errorf(hutch.NotFound, "Session not found")

// findTerminal returns a live terminal of the chat. A client that names no chat finds those of all chats of the user: Open WebUI
// names the chat when it makes a terminal, and not when it attaches.
func (c *call) findTerminal() (hutch.Process, error) {
	list, err := c.terminals()
	if err != nil {
		return hutch.Process{}, err
	}
	id := c.r.PathValue("id")
	i := slices.IndexFunc(list, func(p hutch.Process) bool {
		return p.ID == id && (p.Name == c.terminalOf() || c.r.Header.Get("X-Session-Id") == "")
	})
	if i < 0 {
		return hutch.Process{}, errNoSession
	}
	return list[i], nil
}

func (c *call) getTerminal() (any, error) {
	p, err := c.findTerminal()
	return describeTerminal(p), err
}

func (c *call) deleteTerminal() (any, error) {
	p, err := c.findTerminal()
	if err == nil {
		err = c.svc.Signal(c.ctx, c.sandbox, p.ID, killSignal)
	}
	return map[string]string{"status": "deleted"}, err
}

// endTerminal kills a terminal whose client has gone.
func (c *call) endTerminal(process string) {
	ctx, cancel := compat.Cleanup(c.ctx)
	defer cancel()
	c.svc.Signal(ctx, c.sandbox, process, killSignal) // a shell that has ended needs no signal
}

// attachments are the terminals that have a client.
type attachments struct {
	mu  sync.Mutex
	all map[string]bool
}

func (a *attachments) has(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[key]
}

// take reports whether the terminal had no client. If so, the caller is its client until leave.
func (a *attachments) take(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[key] {
		return false
	}
	if a.all == nil {
		a.all = map[string]bool{}
	}
	a.all[key] = true
	return true
}

func (a *attachments) leave(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, key)
}

func (c *call) key(process string) string {
	return compat.Owner(c.ctx) + " " + c.sandbox + " " + process
}

func wantsSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// terminalRoute answers a GET of a terminal: it describes the terminal, or attaches the client.
func (h *Handler) terminalRoute() http.HandlerFunc {
	describe, attach := h.serve((*call).getTerminal, "user_id"), h.serve((*call).attach, "user_id")
	return func(w http.ResponseWriter, r *http.Request) {
		if _, waits := r.Context().Value(connection{}).(*first); !waits && !wantsSocket(r) {
			describe(w, r)
			return
		}
		attach(w, asUser(r))
	}
}

// asUser takes the user from the query, because some clients of a WebSocket cannot send headers.
func asUser(r *http.Request) *http.Request {
	if id := r.URL.Query().Get("user_id"); id != "" && r.Header.Get("X-User-Id") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-User-Id", id)
	}
	return r
}

// attach shows a terminal to a client. Binary messages are bytes, in both directions; the text {"type":"resize","cols","rows"} sets the size.
func (c *call) attach() (any, error) {
	p, err := c.findTerminal()
	if err != nil {
		return nil, err
	}
	if !c.attached.take(c.key(p.ID)) {
		return nil, errAttached
	}
	defer c.attached.leave(c.key(p.ID))
	waiting, _ := c.ctx.Value(connection{}).(*first)
	if waiting == nil { // the token came with the request
		conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the guard has checked the origin
		if err != nil {
			return nil, nil // Accept has answered
		}
		defer conn.CloseNow()
		if waiting, err = hello(c.ctx, conn); err != nil {
			conn.Close(closeAuth, err.Error())
			return nil, nil
		}
	}
	waiting.taken = true
	defer c.endTerminal(p.ID)
	c.relay(&viewer{conn: waiting.conn, svc: c.svc, sandbox: c.sandbox, process: p.ID, stall: c.opt.Stall})
	return nil, nil
}

var errAttached = hutch.Errorf(hutch.Conflict, "Session already connected")

// relay passes output and input until the shell ends or the client leaves.
func (c *call) relay(v *viewer) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	// A write to a client that does not read would outlive the token, and delay the end of the server.
	stop := context.AfterFunc(c.ctx, func() { time.AfterFunc(lastWords, func() { v.conn.CloseNow() }) })
	defer stop()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer v.conn.CloseNow()
	defer cancel(nil)
	tasks.Go(func() { cancel(v.receive(ctx, &tasks)) })
	tasks.Go(func() { cancel(v.ping(ctx)) })
	_, err := v.svc.Logs(ctx, hutch.LogsRequest{SandboxID: v.sandbox, ProcessID: v.process, Follow: true}, v.output)
	switch cause := context.Cause(c.ctx); {
	case cause != nil: // the token has ended, or the server is closing
		v.conn.Close(websocket.StatusPolicyViolation, reason(cause))
	case err == nil:
		v.conn.Close(websocket.StatusNormalClosure, "the shell has ended")
	case !errors.Is(err, errGone):
		v.conn.Close(websocket.StatusInternalError, reason(err))
	}
}

// reason returns a message for people that fits into a closing frame.
func reason(err error) string {
	m := hutch.AsError(err).Message
	return strings.ToValidUTF8(m[:min(len(m), 120)], "")
}

// viewer is the server's end of the connection of one client.
type viewer struct {
	conn             *websocket.Conn
	svc              hutch.Service
	sandbox, process string
	stall            time.Duration
}

var errGone = errors.New("the client has gone")

const (
	lastWords = time.Second      // to send a client the reason why its connection ends
	pingTime  = 15 * time.Second // between two pings; proxies end connections that carry nothing for a minute
)

// ping keeps the connection of a quiet terminal open, and detects that the client has gone without closing it.
func (v *viewer) ping(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pingTime):
		}
		once, cancel := context.WithTimeout(ctx, v.stall)
		err := v.conn.Ping(once)
		cancel()
		if err != nil {
			return errGone
		}
	}
}

// output sends what the terminal shows, byte by byte: what its escape sequences mean is for the client's terminal to decide. A client that
// does not read holds up only this connection.
func (v *viewer) output(o hutch.Output) error {
	ctx, cancel := context.WithTimeout(context.Background(), v.stall)
	defer cancel()
	if v.conn.Write(ctx, websocket.MessageBinary, o.Data) != nil {
		return errGone
	}
	return nil
}

// maxTyped is how much input can wait for the program, in bytes, and maxFrames in how many messages.
const (
	maxTyped  = 2 * maxFrame
	maxFrames = 4096
)

// receive passes the client's input on until the connection ends. It continues to read while the program does not read,
// to notice the end of the connection. A client that types too far ahead is disconnected.
func (v *viewer) receive(ctx context.Context, tasks *sync.WaitGroup) error {
	v.conn.SetReadLimit(maxFrame)
	keys, typed := io.Pipe()
	tasks.Go(func() {
		v.svc.Input(ctx, v.sandbox, v.process, keys, false) // an error means that the shell has ended, as the output shows
		io.Copy(io.Discard, keys)                           // the client continues to see output
	})
	waiting := make(chan []byte, maxFrames)
	var size atomic.Int64
	var charged int64 // bytes charged to the caller's memory budget: the most that has waited at a time
	tasks.Go(func() {
		defer typed.Close()
		for b := range waiting {
			typed.Write(b) // until the pipe is closed
			size.Add(-int64(len(b)))
		}
	})
	defer close(waiting)
	for {
		typ, b, err := v.conn.Read(context.Background()) // CloseNow ends it
		if err != nil {
			return errGone
		}
		if typ == websocket.MessageText {
			v.resize(ctx, b)
			continue
		}
		held := size.Add(int64(len(b)))
		room := held <= charged || compat.Take(ctx, int(held-charged))
		charged = max(charged, held)
		if held > maxTyped || len(waiting) == maxFrames || !room {
			tasks.Go(func() { v.conn.Close(websocket.StatusPolicyViolation, "the program does not read what is typed") })
			return errGone
		}
		waiting <- b
	}
}

// resize changes the size of the terminal. Like the original, it ignores other messages and impossible sizes.
func (v *viewer) resize(ctx context.Context, b []byte) {
	m := struct {
		Type string `json:"type"`
		Cols *int   `json:"cols"`
		Rows *int   `json:"rows"`
	}{}
	if json.Unmarshal(b, &m) == nil && m.Type == "resize" {
		v.svc.Resize(ctx, v.sandbox, v.process, hutch.Size{Columns: *cmp.Or(m.Cols, new(80)), Rows: *cmp.Or(m.Rows, new(24))})
	}
}

package jupyter

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
)

const pingTime = 30 * time.Second

// client is a connection to a kernel.
type client struct {
	kernel *kernel
	conn   *websocket.Conn
	second bool            // the client speaks the second protocol
	life   context.Context // context of the client's requests, which outlive the connection

	mu   sync.Mutex
	name string // name of the client's session, empty until it is known
}

// channels connects a client with a kernel.
func (h *Handler) channels(w http.ResponseWriter, r *http.Request) {
	k, err := h.named(r)
	if err == nil && !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		err = hutch.Errorf(hutch.Invalid, "channels of a kernel are a WebSocket: connect with a WebSocket client")
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	k.box.ExpiresAt = h.touch(r.Context(), k.box)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{binaryProtocol, "hutch"}, OriginPatterns: patterns(h.origins)})
	if err != nil {
		return // Accept has sent the error
	}
	c := &client{
		kernel: h.connectKernel(k), conn: conn, second: conn.Subprotocol() == binaryProtocol,
		life: context.WithoutCancel(r.Context()), name: r.URL.Query().Get("session_id"),
	}
	c.serve(r.Context())
}

// patterns returns patterns that match the origins word for word.
func patterns(origins []string) (list []string) {
	literal := strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`)
	for _, origin := range origins {
		list = append(list, literal.Replace(origin))
	}
	return list
}

// serve passes messages on until the connection ends.
func (c *client) serve(ctx context.Context) {
	defer c.conn.CloseNow()
	if !c.kernel.join(c) {
		c.conn.Close(websocket.StatusGoingAway, "the kernel was shut down")
		return
	}
	defer c.kernel.part(c)
	c.conn.SetReadLimit(maxFrame)
	ctx, cancel := context.WithCancel(ctx)
	var pings sync.WaitGroup
	defer pings.Wait()
	defer cancel()
	pings.Go(func() { c.ping(ctx) })
	for {
		t := c.newTask()
		err := c.read(ctx, t)
		if err != nil {
			t.end()
			c.refuse(err)
			return
		}
		c.learn(t.header.Session)
		c.kernel.receive(t)
	}
}

// read reads the message of a task. Its bytes are charged to the caller until the task ends.
func (c *client) read(ctx context.Context, t *task) error {
	typ, r, err := c.conn.Reader(ctx)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(charged{r, caller.From(t.ctx).Budget.Take})
	if err != nil {
		return err
	}
	t.message, err = decode(typ, b, c.second)
	return err
}

// charged is a reader whose bytes take memory of a caller.
type charged struct {
	io.Reader
	take func(int) bool
}

var errNoRoom = hutch.Errorf(hutch.Exhausted, "the messages of this token take as much memory as it can have: wait for some")

func (c charged) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if !c.take(n) {
		return 0, errNoRoom
	}
	return n, err
}

// refuse ends the connection because of an invalid message, unless the connection has ended already.
func (c *client) refuse(err error) {
	switch hutch.KindOf(err) {
	case hutch.Exhausted:
		c.conn.Close(websocket.StatusTryAgainLater, reason(err))
	case hutch.Invalid:
		c.conn.Close(websocket.StatusInvalidFramePayloadData, reason(err))
	}
}

// reason returns the text of an error, cut to the length that fits into a close reason.
func reason(err error) string {
	const most = 120 // bytes
	text := hutch.AsError(err).Message
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// ping detects when the connection is dead.
func (c *client) ping(ctx context.Context) {
	tick := time.NewTicker(pingTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ctx, done := context.WithTimeout(ctx, pingTime)
		err := c.conn.Ping(ctx)
		done()
		if err != nil {
			c.conn.CloseNow()
			return
		}
	}
}

// learn notes the session of a client that has not named it before.
func (c *client) learn(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.name == "" {
		c.name = session
	}
}

func (c *client) session() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// send sends a message. A client that does not read it in time is disconnected.
func (c *client) send(a *answer) {
	ctx, cancel := context.WithTimeout(context.Background(), c.kernel.h.stall)
	defer cancel()
	typ, b := websocket.MessageText, []byte(nil)
	if c.second {
		typ, b = websocket.MessageBinary, a.frame()
	} else {
		b = a.object()
	}
	if c.conn.Write(ctx, typ, b) != nil {
		c.kernel.part(c)
		c.conn.CloseNow()
	}
}

// leave ends the connection, with a reason.
func (c *client) leave(reason string) {
	c.kernel.part(c)
	c.kernel.h.runs.Go(func() { c.conn.Close(websocket.StatusGoingAway, reason) })
}

func (k *kernel) join(c *client) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.gone {
		k.clients[c] = true
	}
	return !k.gone
}

func (k *kernel) part(c *client) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.clients, c)
}

// receive handles the message of a task.
func (k *kernel) receive(t *task) {
	switch {
	case t.channel == stdin:
		k.answered(t)
		t.end()
	case t.channel == control:
		k.control(t)
		t.end()
	case t.header.Type == "comm_msg" || t.header.Type == "comm_close":
		t.end() // comms are not supported
	default:
		k.enqueue(t)
	}
}

package agent

import (
	"bufio"
	"encoding/json"
	"net"
	"sync"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/wire"
)

const maxHello = 4 << 10

// conn is one connection from the daemon, or from a program that pretends to be the daemon.
type conn struct {
	net.Conn
	agent *agent
	in    *bufio.Reader
	r     *wire.Reader

	mu   sync.Mutex
	task task // the task of the present request; nil between requests
}

// task is a request that continues while its connection is read.
type task interface {
	stdin(data []byte) bool // returns false if more data arrives than the window allows
	stdinEnd()
	signal(sig syscall.Signal)
	hangUp() // the connection is closed; called once
}

func newConn(a *agent, nc net.Conn) *conn {
	in := bufio.NewReaderSize(nc, 4<<10)
	return &conn{Conn: nc, agent: a, in: in, r: wire.NewReader(in, maxHello)}
}

// serve reads the connection to its end.
func (c *conn) serve() {
	defer c.agent.gone(c)
	defer c.Close()
	if !c.hello() {
		return
	}
	c.r = wire.NewReader(c.in, wire.MaxRequest)
	for {
		t, payload, err := c.r.Next()
		if err != nil || !c.frame(t, payload) {
			break
		}
	}
	if t := c.current(); t != nil {
		t.hangUp()
	}
}

// hello accepts a daemon that knows the token. The agent proves first that it knows the token itself, so that the
// daemon reveals nothing to an impostor.
func (c *conn) hello() bool {
	c.SetDeadline(time.Now().Add(helloTime))
	t, payload, err := c.r.Next()
	if err != nil || t != wire.TypeHello {
		return false
	}
	w := wire.NewWriter(c.Conn)
	var h wire.Hello
	if json.Unmarshal(payload, &h) != nil {
		return refuse(w, hutch.Errorf(hutch.Denied, "this is not a hello"))
	}
	if h.Version != wire.Version {
		return refuse(w, hutch.Errorf(hutch.Unsupported, "the agent speaks version %d of the protocol, not %d: create the sandbox again", wire.Version, h.Version))
	}
	token, n := c.agent.currentToken(), wire.Nonces{Daemon: h.Nonce, Agent: wire.NewNonce()}
	if w.WriteJSON(wire.TypeWelcome, wire.Welcome{Version: wire.Version, Build: Build, Nonce: n.Agent, Proof: n.Proof(token, wire.AgentSide)}) != nil {
		return false
	}
	t, payload, err = c.r.Next()
	if err != nil {
		return false
	}
	if t != wire.TypeProof || !n.Proves(token, wire.DaemonSide, payload) {
		return refuse(w, hutch.Errorf(hutch.Denied, "the daemon does not know the agent's token"))
	}
	if !c.agent.markKnown(c) {
		return refuse(w, hutch.Errorf(hutch.Exhausted, "the agent has %d connections, its limit: close some", maxConns))
	}
	c.SetDeadline(time.Time{})
	return true
}

// refuse sends an error. It always returns false, so that callers can return its result.
func refuse(w *wire.Writer, err error) bool {
	e := hutch.AsError(err)
	f := wire.Failure{Kind: e.Kind, Message: e.Message, Limit: e.Limit()}
	if e.Kind == hutch.Internal && e.Cause != nil {
		f.Cause = e.Cause.Error()
	}
	w.WriteJSON(wire.TypeError, f)
	return false
}

// frame handles one frame and reports whether it was valid.
func (c *conn) frame(t wire.Type, payload []byte) bool {
	task := c.current()
	switch t {
	case wire.TypeRequest:
		return task == nil && c.request(payload)
	case wire.TypeStdin:
		return task == nil || task.stdin(payload)
	case wire.TypeStdinEnd:
		if task != nil {
			task.stdinEnd()
		}
		return true
	case wire.TypeSignal:
		var s wire.Signal
		if json.Unmarshal(payload, &s) != nil || s.Signal < 1 || s.Signal > 64 {
			return false
		}
		if task != nil {
			task.signal(syscall.Signal(s.Signal))
		}
		return true
	}
	return false
}

func (c *conn) current() task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.task
}

// beginTask makes t the connection's task.
func (c *conn) beginTask(t task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.task = t
}

// endTask frees the connection for the next request. It is called before the last frame of the request is sent, because
// the next request can follow at once.
func (c *conn) endTask() { c.beginTask(nil) }

// request starts a request. If the request has a single answer, it also answers it.
func (c *conn) request(payload []byte) bool {
	var req wire.Request
	if json.Unmarshal(payload, &req) != nil {
		return false
	}
	c.agent.idle.touch()
	w := wire.NewWriter(c.Conn)
	if req.Op == "port" {
		c.port(w, req.Port)
		return false // the connection has served its purpose, and closes
	}
	answer, err := c.do(w, req)
	switch {
	case err != nil:
		refuse(w, err)
	case answer != nil:
		w.WriteJSON(wire.TypeReply, answer)
	}
	return err != nil || req.Op != "park" && (req.Op != "adopt" || req.Adopt.Token == "")
}

// do returns the answer of a request, or nil if a task will answer.
func (c *conn) do(w *wire.Writer, req wire.Request) (answer any, err error) {
	jobs := c.agent.jobs
	switch {
	case req.Op == "start" && req.Start != nil && req.Start.Detach:
		return jobs.start(*req.Start)
	case req.Op == "start" && req.Start != nil:
		return nil, c.runAttached(w, *req.Start)
	case req.Op == "attach" && req.Attach != nil:
		return nil, c.attach(w, *req.Attach)
	case req.Op == "list":
		return jobs.list(), nil
	case req.Op == "signal" && req.Signal != nil:
		return struct{}{}, jobs.signalProcess(*req.Signal)
	case req.Op == "input" && req.Input != nil:
		return nil, c.input(w, *req.Input)
	case req.Op == "resize" && req.Resize != nil:
		return struct{}{}, jobs.resize(*req.Resize)
	case req.Op == "wait" && req.Wait != nil:
		return nil, c.startWait(w, *req.Wait)
	case req.Op == "listening":
		return listening()
	case req.Op == "clean":
		return wire.Cleaned{Removed: jobs.clean()}, nil
	case req.Op == "context" && req.Context != nil:
		return c.agent.contexts.create(*req.Context)
	case req.Op == "spare" && req.Context != nil:
		return struct{}{}, c.agent.contexts.spare(*req.Context)
	case req.Op == "contexts":
		return c.agent.contexts.list(), nil
	case req.Op == "uncontext" && req.Context != nil:
		c.agent.contexts.delete(req.Context.ID)
		return struct{}{}, nil
	case req.Op == "interrupt" && req.Context != nil:
		return struct{}{}, c.agent.contexts.interruptRun(req.Context.ID)
	case req.Op == "run" && req.Run != nil:
		return nil, c.runCode(w, *req.Run)
	case req.File != nil:
		return c.file(w, req.Op, *req.File)
	case req.Op == "adopt" && req.Adopt != nil:
		return struct{}{}, c.agent.adopt(c, *req.Adopt)
	case req.Op == "relieve" && req.Relieve != nil:
		return c.agent.relieve(*req.Relieve), nil
	case req.Op == "park":
		return struct{}{}, c.agent.park(c)
	case req.Op == "ping":
		return wire.Stats{Live: jobs.live(), Processes: len(processes(map[int]bool{}, time.Time{})) + 1}, nil
	}
	return nil, hutch.Errorf(hutch.Unsupported, "the agent knows no request %.40q: it may be older than the daemon", req.Op)
}

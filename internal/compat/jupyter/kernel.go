package jupyter

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// States of a kernel.
const (
	idle       = "idle"
	busy       = "busy"
	starting   = "starting"
	restarting = "restarting"
	dead       = "dead"
)

// Limits of the requests that wait in a kernel.
const (
	maxWaiting      = 256
	maxWaitingBytes = 8 << 20
	maxHistory      = 128 << 10 // bytes; it is kept when the clients have disconnected
)

// key identifies a kernel among the kernels of all owners.
type key struct{ owner, id string }

// kernel is the current work of one kernel. One goroutine handles the requests on the channel shell; it exists while
// requests wait.
type kernel struct {
	h *Handler
	known

	mu      sync.Mutex
	clients map[*client]bool
	waiting []*task
	bytes   int   // size of the waiting requests
	current *task // being done
	state   string
	active  time.Time
	count   int // the number of the newest run that has a number
	history []input
	size    int        // bytes of history
	ends    *time.Time // end of the sandbox, as known to the goroutine that handles the requests
	stayed  time.Time  // when that goroutine last postponed that end
	ran     bool       // the interpreter has run code
	lost    bool       // the interpreter's state was lost, and no client has been informed yet
	gone    bool
}

// input is code that has run.
type input struct {
	line int
	code string
}

// size estimates the memory of an input.
func (i input) size() int { return len(i.code) + 64 }

// live returns the current work of a kernel, or nil when no client has connected.
func (h *Handler) live(k known) *kernel {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kernels[key{k.box.Owner, k.String()}]
}

// connectKernel does the same as live, for a client that connects.
func (h *Handler) connectKernel(k known) *kernel {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := key{k.box.Owner, k.String()}
	if h.kernels[at] == nil {
		h.pruneLocked(at.owner)
		h.kernels[at] = &kernel{h: h, known: k, clients: map[*client]bool{}, ends: k.box.ExpiresAt, state: idle, active: time.Now().UTC()}
	}
	return h.kernels[at]
}

// maxLive is how many kernels of an owner are kept in memory without a client or a run.
const maxLive = 256

// pruneLocked makes space for one more kernel of an owner.
func (h *Handler) pruneLocked(owner string) {
	var unused []key
	n := 0
	for at, k := range h.kernels {
		if at.owner != owner {
			continue
		}
		n++
		k.mu.Lock()
		if len(k.clients) == 0 && k.current == nil && time.Since(k.active) > time.Minute { // time for a client to join
			unused = append(unused, at)
		}
		k.mu.Unlock()
	}
	if n < maxLive {
		return
	}
	for _, at := range unused {
		delete(h.kernels, at)
	}
}

// forget removes the work of a deleted kernel.
func (h *Handler) forget(k known) {
	at := key{k.box.Owner, k.String()}
	h.mu.Lock()
	live := h.kernels[at]
	delete(h.kernels, at)
	h.mu.Unlock()
	if live != nil {
		live.endDeleted()
	}
}

// lives lists the kernels of an owner that clients have connected to.
func (h *Handler) lives(owner string) (list []known) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, k := range h.kernels {
		if at.owner == owner {
			list = append(list, k.known)
		}
	}
	return list
}

// forgetMissing removes the work of kernels that are missing from a later list.
func (h *Handler) forgetMissing(some, list []known) {
	there := map[place]bool{}
	for _, k := range list {
		there[k.place] = true
	}
	for _, k := range some {
		if !there[k.place] {
			h.forget(k)
		}
	}
}

// end shuts a kernel down.
func (h *Handler) end(ctx context.Context, k known) error {
	live := h.live(k)
	if live != nil {
		live.leaving(true) // a new request would create its context again
		live.drop(errShut)
	}
	if err := h.discard(ctx, k); err != nil {
		if live != nil {
			live.leaving(false)
		}
		return err
	}
	h.forget(k)
	return nil
}

// stop interrupts the run of a kernel. For an idle kernel it does nothing: there is no context to interrupt, or the
// context ignores the interrupt.
func (h *Handler) stop(ctx context.Context, k known) error {
	err := h.svc.Interrupt(ctx, k.sandbox(), k.context())
	if hutch.KindOf(err) == hutch.NotFound && !compat.Missing(err) {
		return nil
	}
	return err
}

// again starts the interpreter of a kernel again, without its state.
func (h *Handler) again(ctx context.Context, k known) error {
	live := h.live(k)
	if live != nil {
		live.drop(errShut)
	}
	if err := h.svc.DeleteContext(ctx, k.sandbox(), k.context()); err != nil {
		return err
	}
	if err := h.startContext(ctx, k, nil); err != nil {
		return err
	}
	if live != nil {
		live.mu.Lock()
		live.count, live.history, live.size, live.ran = 0, nil, 0, false
		live.mu.Unlock()
		live.announce(starting)
		live.announce(idle)
	}
	return nil
}

// drop ends the current request, and all waiting ones.
func (k *kernel) drop(cause error) {
	k.mu.Lock()
	waiting, current := k.waiting, k.current
	k.waiting, k.bytes = nil, 0
	k.mu.Unlock()
	for _, t := range waiting {
		k.abort(t)
	}
	if current != nil {
		current.cancel(cause)
	}
}

// leaving sets whether the kernel is deleted or is being deleted. Such a kernel accepts no requests.
func (k *kernel) leaving(gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone = gone
}

// endDeleted ends a deleted kernel, for its clients too.
func (k *kernel) endDeleted() {
	k.leaving(true)
	k.drop(errShut)
	k.announce(dead)
	for _, c := range k.all() {
		c.leave("the kernel was shut down")
	}
}

func (k *kernel) all() []*client {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]*client, 0, len(k.clients))
	for c := range k.clients {
		list = append(list, c)
	}
	return list
}

// publish sends a message to all clients.
func (k *kernel) publish(typ string, parent []byte, content any) {
	k.broadcast(newAnswer(iopub, typ, parent, nil, content))
}

func (k *kernel) broadcast(a *answer) {
	for _, c := range k.all() {
		c.send(a)
	}
}

type statusContent struct {
	State string `json:"execution_state"`
}

// report publishes the state of the kernel after a request has changed it.
func (k *kernel) report(state string, parent []byte) {
	k.mu.Lock()
	k.state, k.active = state, time.Now().UTC()
	k.mu.Unlock()
	k.publish("status", parent, statusContent{state})
}

// announce publishes a state of the kernel that belongs to no request.
func (k *kernel) announce(state string) { k.report(state, nil) }

// reply answers a request. The client may have reconnected since: the same session is the same client.
func (k *kernel) reply(t *task, channel, typ string, content any) {
	a := newAnswer(channel, typ, t.parent, nil, content)
	for _, c := range k.all() {
		if c == t.client || t.header.Session != "" && c.session() == t.header.Session {
			c.send(a)
		}
	}
}

// errFull is the error of a request to a kernel where too many wait.
var errFull = hutch.Errorf(hutch.Exhausted, "too many requests wait for this kernel: at most %d, and %d MiB in all, can wait", maxWaiting, maxWaitingBytes>>20)

// enqueue passes a request to the kernel.
func (k *kernel) enqueue(t *task) {
	n := t.size()
	k.mu.Lock()
	if gone := k.gone; gone || len(k.waiting) >= maxWaiting || k.bytes+n > maxWaitingBytes {
		k.mu.Unlock()
		if gone {
			k.refuse(t, errShut)
		} else {
			k.refuse(t, errFull)
		}
		return
	}
	k.waiting, k.bytes = append(k.waiting, t), k.bytes+n
	begin := k.current == nil && len(k.waiting) == 1
	if begin {
		k.current = t // so that no second goroutine starts
	}
	k.mu.Unlock()
	if begin {
		k.h.runs.Go(k.work)
	}
}

// work handles the waiting requests.
func (k *kernel) work() {
	for {
		t := k.next()
		if t == nil {
			return
		}
		k.do(t)
		t.end()
	}
}

func (k *kernel) next() *task {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = nil
	if len(k.waiting) == 0 {
		return nil
	}
	k.current, k.waiting = k.waiting[0], k.waiting[1:]
	k.bytes -= k.current.size()
	return k.current
}

// abortWaiting aborts the runs that wait, because one before them failed.
func (k *kernel) abortWaiting() {
	k.mu.Lock()
	var aborted []*task
	k.waiting = slices.DeleteFunc(k.waiting, func(t *task) bool {
		is := t.header.Type == "execute_request"
		if is {
			aborted = append(aborted, t)
			k.bytes -= t.size()
		}
		return is
	})
	k.mu.Unlock()
	for _, t := range aborted {
		k.abort(t)
	}
}

// abort answers a request that will not be carried out.
func (k *kernel) abort(t *task) {
	k.finish(t, map[string]any{"status": "aborted"})
	t.end()
}

// refuse answers a request that cannot be carried out.
func (k *kernel) refuse(t *task, err error) {
	k.finish(t, failureOf(err))
	t.end()
}

// finish sends the answer of a request between the two states that clients wait for.
func (k *kernel) finish(t *task, content any) {
	k.mu.Lock()
	state := k.state
	k.mu.Unlock()
	k.publish("status", t.parent, statusContent{busy})
	k.reply(t, t.channel, replyType(t.header.Type), content)
	k.publish("status", t.parent, statusContent{idle})
	if state == busy {
		k.publish("status", nil, statusContent{busy}) // of the current run
	}
}

func replyType(request string) string {
	name, is := strings.CutSuffix(request, "_request")
	if !is {
		return request + "_reply"
	}
	return name + "_reply"
}

// failure is the answer to a request that failed.
type failure struct {
	Status    string         `json:"status"`
	Name      string         `json:"ename"`
	Value     string         `json:"evalue"`
	Traceback []string       `json:"traceback"`
	Count     int            `json:"execution_count,omitempty"`
	Payload   []any          `json:"payload,omitempty"`
	Values    map[string]any `json:"user_expressions,omitempty"`
}

func failureOf(err error) failure {
	e := hutch.AsError(err)
	return failure{Status: "error", Name: string(e.Kind), Value: e.Message, Traceback: []string{e.Message}}
}

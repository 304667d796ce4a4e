package agent

import (
	"slices"
	"sync"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// contexts are the code contexts.
type contexts struct {
	agent  *agent
	making sync.Mutex // one context is created at a time; taken before mu

	mu     sync.Mutex
	closed bool
	all    []*codeContext // oldest first
	spares []*spare
}

// create creates a context, or returns the existing one with that id.
func (cs *contexts) create(req wire.Context) (wire.ContextInfo, error) {
	cs.making.Lock()
	defer cs.making.Unlock()
	c, err := cs.find(req.ID)
	switch {
	case err == nil:
		return c.info(), nil
	case len(req.Argv) == 0:
		return wire.ContextInfo{}, err
	}
	if err := cs.room(); err != nil {
		return wire.ContextInfo{}, err
	}
	i := cs.takeSpare(req)
	if i == nil {
		if i, err = cs.agent.interpret(req, hutch.NewID("k")); err != nil {
			return wire.ContextInfo{}, err
		}
	}
	c = &codeContext{
		agent: cs.agent, req: req, mark: i.mark, interp: i, created: time.Now(), used: time.Now(),
		wake: make(chan struct{}, 1), gone: make(chan struct{}), ended: make(chan struct{}),
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all = append(cs.all, c)
	cs.agent.group.Go(c.live)
	if cs.closed {
		close(c.gone)
	}
	return c.info(), nil
}

func (cs *contexts) room() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.all) >= wire.MaxContexts {
		return hutch.Errorf(hutch.Exhausted, "the sandbox has %d code contexts and sessions, its limit: delete one of them first", wire.MaxContexts)
	}
	return nil
}

func (cs *contexts) find(id string) (*codeContext, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	i := slices.IndexFunc(cs.all, func(c *codeContext) bool { return c.req.ID == id })
	if i < 0 {
		return nil, hutch.Errorf(hutch.NotFound, "there is no context %s in the sandbox: it was never made, was deleted, or was idle for too long", quote(id))
	}
	return cs.all[i], nil
}

func (cs *contexts) list() []wire.ContextInfo {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	list := make([]wire.ContextInfo, 0, len(cs.all))
	for _, c := range cs.all {
		list = append(list, c.info())
	}
	return list
}

// delete ends a context, and returns when everything that it started has ended.
func (cs *contexts) delete(id string) {
	if c, err := cs.find(id); err == nil {
		cs.remove(c)
		<-c.ended
	}
}

// remove removes a context from the table, and reports whether it existed.
func (cs *contexts) remove(c *codeContext) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	i := slices.Index(cs.all, c)
	if i < 0 {
		return false
	}
	cs.all = slices.Delete(cs.all, i, i+1)
	close(c.gone)
	return true
}

func (cs *contexts) interruptRun(id string) error {
	c, err := cs.find(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.requestEnd()
	}
	return nil
}

// closeAll ends all contexts.
func (cs *contexts) closeAll() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for _, c := range cs.all {
		close(c.gone)
	}
	cs.all = nil
}

// codeContext is an interpreter and its queue of runs. One goroutine, live, takes the runs one by one; after an
// interpreter has ended, the next run starts a new one.
type codeContext struct {
	agent   *agent
	req     wire.Context
	mark    string // marks every process that its interpreters start
	created time.Time
	wake    chan struct{} // signals that the queue is not empty
	gone    chan struct{} // closed when the context is deleted
	ended   chan struct{} // closed when no process of the context is left

	// Only live uses this.
	interp    *interpreter
	leftovers bool // an interpreter has ended, and can have left processes behind

	mu      sync.Mutex
	queue   []*codeRun
	current *codeRun
	runs    int
	used    time.Time
	closed  bool   // accepts no more runs
	news    string // unsent text: see queueText
}

func (c *codeContext) info() wire.ContextInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.ContextInfo{
		ID: c.req.ID, Language: c.req.Language, Dir: c.req.Dir, Runs: c.runs,
		CreatedMS: c.created.UnixMilli(), UsedMS: c.used.UnixMilli(), Busy: c.current != nil || len(c.queue) > 0,
	}
}

// addRun puts a run at the end of the queue.
func (c *codeContext) addRun(r *codeRun) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return hutch.Errorf(hutch.NotFound, "the context %s has been deleted", quote(c.req.ID))
	case len(c.queue) >= wire.MaxQueued:
		return hutch.Errorf(hutch.Exhausted, "%d runs wait in the context %s, its limit: wait for some of them, or use another context", wire.MaxQueued, quote(c.req.ID))
	}
	c.queue = append(c.queue, r)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// live runs the queue until the context is deleted, or has been idle for too long.
func (c *codeContext) live() {
	defer close(c.ended)
	for {
		if r := c.takeRun(); r != nil {
			c.perform(r)
		} else if !c.pause() {
			break
		}
	}
	c.close()
}

// takeRun takes a run from the queue; nil when the queue is empty.
func (c *codeContext) takeRun() *codeRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 || isClosed(c.gone) {
		return nil
	}
	c.current = c.queue[0]
	c.queue = c.queue[1:]
	c.runs++
	return c.current
}

// pause waits for a run. It returns false if the context ends first.
func (c *codeContext) pause() bool {
	var idle <-chan time.Time
	if c.req.IdleMS > 0 {
		timer := time.NewTimer(time.Duration(min(c.req.IdleMS, maxTimeout)) * time.Millisecond)
		defer timer.Stop()
		idle = timer.C
	}
	select {
	case <-c.wake:
		return true
	case <-idle:
		return !c.expire()
	case <-c.gone:
		return false
	}
}

// expire ends an idle context, unless a run is about to start.
func (c *codeContext) expire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 {
		return false
	}
	c.closed = true
	return true
}

// perform runs a run to its end.
func (c *codeContext) perform(r *codeRun) {
	defer c.agent.idle.touch()
	if isClosed(r.gone) {
		r.discard()
		c.free()
		return
	}
	if c.interp == nil || c.interp.gone() {
		c.leftovers = true
		var err error
		if c.interp, err = c.agent.interpret(c.req, c.mark); err != nil {
			c.interp = nil
			c.free()
			r.refuse(err)
			return
		}
	}
	c.mu.Lock()
	runs := c.runs
	c.mu.Unlock()
	r.req.Input = c.takeText() + r.req.Input
	end := r.in(c.interp, runs, c.gone)
	if end.Ended {
		c.interp, c.leftovers = nil, true
	}
	c.free()
	r.finishRun(end)
}

// free records that no run is in progress.
func (c *codeContext) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.used = nil, time.Now()
}

// close ends all processes of the context, and refuses the waiting runs.
func (c *codeContext) close() {
	c.agent.contexts.remove(c)
	c.kill()
	c.mu.Lock()
	c.closed = true
	queue := c.queue
	c.queue = nil
	c.mu.Unlock()
	for _, r := range queue {
		r.refuse(hutch.Errorf(hutch.Conflict, "the context %s was deleted while the run waited", quote(c.req.ID)))
	}
}

// kill kills all processes of the context. Finding them takes long if the sandbox has many processes, so kill searches
// only if the interpreter can have started some.
func (c *codeContext) kill() {
	root := func() int { return 0 }
	if c.interp != nil {
		root = c.interp.root
	}
	if pid := root(); pid != 0 && !c.leftovers && !c.interp.hasChildren() {
		syscall.Kill(pid, syscall.SIGSTOP) // so that it starts nothing more
		if !c.interp.hasChildren() {
			syscall.Kill(pid, syscall.SIGKILL)
			<-c.interp.done
			return
		}
	}
	c.agent.tree(c.mark, root).kill()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

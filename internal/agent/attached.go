package agent

import (
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// maxTimeout is in milliseconds. It is longer than any sandbox lives, and fits a time.Duration.
const maxTimeout = 1 << 40

// attached is a process whose output goes to the connection that started it. If the source must be compiled, the
// compiler runs first.
type attached struct {
	peer
	agent *agent
	start wire.Start
	run   *running // the current program; only wait changes it
	tree  atomic.Pointer[tree]
}

// runAttached starts an attached process.
func (c *conn) runAttached(w *wire.Writer, s wire.Start) error {
	if err := checkStart(s); err != nil {
		return err
	}
	p, err := c.agent.launch(firstStep(s))
	if err != nil {
		return unstarted(err)
	}
	t := &attached{peer: peer{conn: c, w: w, gone: make(chan struct{})}, agent: c.agent, start: s, run: p}
	t.tree.Store(&p.tree)
	rec := record(s)
	rec.PID, rec.Status = p.pid, hutch.ProcessRunning
	w.WriteJSON(wire.TypeStarted, rec)
	if s.Stdin {
		t.feed = newFeed(w)
	}
	c.beginTask(t)
	c.agent.group.Go(func() { t.awaitEnd(time.Duration(min(s.TimeoutMS, maxTimeout)) * time.Millisecond) })
	return nil
}

// firstStep returns the part of s that runs first: the compiler or, without one, the program.
func firstStep(s wire.Start) wire.Start {
	if len(s.Compile) > 0 {
		s.Command, s.Argv, s.Stdin = "", s.Compile, false
	}
	return s
}

// awaitEnd waits for the end of the process, and reports it. A time limit or a hang-up forces the end.
func (t *attached) awaitEnd(limit time.Duration) {
	defer t.agent.idle.touch()
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	defer func() { t.run.clean() }()
	if t.feed != nil {
		defer t.feed.close()
	}
	if len(t.start.Compile) > 0 {
		t.run.readOutput(t.agent.attached, func(_ wire.Type, data []byte) { t.output(wire.TypeStderr, data) })
		if x := t.ended(late); x.Code != 0 || x.TimedOut {
			x.Compile = true
			t.sendExit(x)
			return
		}
		if err := t.startProgram(); err != nil {
			t.fail(unstarted(err))
			return
		}
	}
	t.run.readOutput(t.agent.attached, t.output)
	if t.feed != nil {
		t.agent.group.Go(func() { t.feed.writeTo(t.run.in) })
	}
	x := t.ended(late)
	if t.feed != nil {
		t.feed.close()
	}
	t.sendExit(x)
}

// ended waits for the end of the current program, and reports how it ended.
func (t *attached) ended(late <-chan time.Time) wire.Exit {
	timedOut := false
	var status syscall.WaitStatus
	select {
	case status = <-t.run.status:
	case <-late:
		timedOut = true
		t.run.tree.kill()
		status = <-t.run.status
	case <-t.gone:
		t.run.tree.kill()
		status = <-t.run.status
	}
	t.run.awaitOutput()
	x := exitOf(status)
	x.TimedOut, x.Memory = timedOut, t.run.memory.Load() && !timedOut
	return x
}

// startProgram starts the program after the compiler.
func (t *attached) startProgram() error {
	select {
	case <-t.gone:
		return errHungUp
	default:
	}
	source := filepath.Join(t.run.source, t.start.SourceName)
	p, err := t.agent.launchOn(t.start, t.run.user, source)
	if err != nil {
		return err
	}
	t.run = p
	t.tree.Store(&p.tree)
	return nil
}

func (t *attached) sendExit(x wire.Exit) {
	t.sendLast(func() {
		x.Cursor = t.cursor
		t.w.WriteJSON(wire.TypeExit, x)
	})
}

func (t *attached) signal(sig syscall.Signal) { t.tree.Load().signalAll(sig) }

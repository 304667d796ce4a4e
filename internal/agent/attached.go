package agent

import (
	"sync"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// maxTimeout, in milliseconds, is longer than any sandbox lives, and fits a
// time.Duration.
const maxTimeout = 1 << 40

// attached is a process whose output goes to the connection that started it.
type attached struct {
	*running
	conn *conn
	w    *wire.Writer
	feed *feed // nil without stdin
	gone chan struct{}

	mu     sync.Mutex // held while output is written
	cursor int64
	closed bool // exit has been sent
}

// run starts an attached process.
func (c *conn) run(w *wire.Writer, s wire.Start) error {
	if err := checkStart(s); err != nil {
		return err
	}
	p, err := c.agent.launch(s)
	if err != nil {
		return unstarted(err)
	}
	t := &attached{running: p, conn: c, w: w, gone: make(chan struct{})}
	rec := record(s)
	rec.PID, rec.Status = p.pid, hutch.ProcessRunning
	w.WriteJSON(wire.TypeStarted, rec)
	if p.in != nil {
		t.feed = newFeed(p.in, w)
		c.agent.group.Go(t.feed.run)
	}
	c.begin(t)
	p.read(t.output)
	c.agent.group.Go(func() { t.wait(time.Duration(min(s.TimeoutMS, maxTimeout)) * time.Millisecond) })
	return nil
}

// wait waits for the end of the process, which a time limit or a hang-up
// brings about, and reports it.
func (t *attached) wait(limit time.Duration) {
	defer t.agent.idle.touch()
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	timedOut := false
	var status syscall.WaitStatus
	select {
	case status = <-t.status:
	case <-late:
		timedOut = true
		t.tree.kill()
		status = <-t.status
	case <-t.gone:
		t.tree.kill()
		status = <-t.status
	}
	if t.feed != nil {
		t.feed.close()
	}
	t.settle()
	t.exit(status, timedOut)
	t.clean()
}

// output sends output on, until the exit has been sent.
func (t *attached) output(kind wire.Type, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.cursor += int64(len(data))
		t.w.WriteOutput(kind, t.cursor, data)
	}
}

func (t *attached) exit(status syscall.WaitStatus, timedOut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	x := exit(status)
	x.TimedOut, x.Cursor = timedOut, t.cursor
	t.conn.end()
	t.w.WriteJSON(wire.TypeExit, x)
}

func (t *attached) signal(sig syscall.Signal) { t.tree.signal(sig) }

func (t *attached) hangUp() { close(t.gone) }

func (t *attached) stdin(data []byte) bool { return t.feed == nil || t.feed.add(data) }

func (t *attached) stdinEnd() {
	if t.feed != nil {
		t.feed.end()
	}
}

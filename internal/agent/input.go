package agent

import (
	"errors"
	"os"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// maxInputs is how many requests can write to one process at a time. Each can store a full window of data in the agent
// while the program does not read.
const maxInputs = 64

// input is a request that writes to a job; several can write at once.
type input struct {
	*feed
	gone chan struct{}
}

func (i *input) signal(syscall.Signal) {}
func (i *input) hangUp()               { close(i.gone) }
func (i *input) stdin(b []byte) bool   { return i.addInput(b) }
func (i *input) stdinEnd()             { i.endInput() }

// input begins to write to a job.
func (c *conn) input(w *wire.Writer, in wire.Input) error {
	j, err := c.agent.jobs.find(in.Process)
	if err != nil {
		return err
	}
	p, pipe, err := j.openInput(in.End)
	if err != nil {
		return err
	}
	i := &input{newFeed(w), make(chan struct{})}
	w.WriteJSON(wire.TypeStarted, j.record())
	c.beginTask(i)
	c.agent.group.Go(func() { c.write(i, w, j, p, pipe, in.End) })
	return nil
}

// openInput returns the present run of a job, and a separate descriptor for its input, so that cancelling one request
// disturbs no other.
func (j *job) openInput(end bool) (*running, *os.File, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !j.start.Stdin && j.start.Terminal == nil:
		return nil, nil, hutch.Errorf(hutch.Unsupported, "the process %s has no input: start it with openStdin, or with a terminal", j.start.ID)
	case j.start.Terminal != nil && end:
		return nil, nil, hutch.Errorf(hutch.Invalid, "the input of a terminal does not end: send the byte 4 (Ctrl-D), which most programs take for its end")
	case j.run == nil || j.inputEnded:
		return nil, nil, noReader(j.start.ID)
	case j.inputs >= maxInputs:
		return nil, nil, hutch.Errorf(hutch.Exhausted, "%d calls write to the process %s already, and it does not read: wait for them", maxInputs, j.start.ID)
	}
	pipe, err := duplicate(j.run.in)
	if err != nil {
		return nil, nil, noReader(j.start.ID)
	}
	j.inputs++
	return j.run, pipe, nil
}

func noReader(id string) error {
	return hutch.Errorf(hutch.Conflict, "the process %s takes no more input: it has ended, or its input has", id)
}

// write waits for the end of an input. The end of the process or a hang-up also ends the input.
func (c *conn) write(i *input, w *wire.Writer, j *job, p *running, pipe *os.File, end bool) {
	written := make(chan error, 1)
	c.agent.group.Go(func() { written <- i.writeTo(pipe) })
	var err error
	select {
	case err = <-written:
	case <-p.over:
		err = i.last(written)
	case <-i.gone:
		i.close()
		<-written
		end = false
	}
	j.closeInput(p, end && err == nil)
	c.endTask()
	if err != nil {
		refuse(w, noReader(j.start.ID))
		return
	}
	w.WriteJSON(wire.TypeReply, struct{}{})
}

// lastFrame is how long the end of an input can take to arrive, after input such as "exit" has ended the program.
const lastFrame = 100 * time.Millisecond

// last decides the result of an input whose program has ended.
func (i *input) last(written <-chan error) error {
	select {
	case err := <-written:
		return err
	case <-time.After(lastFrame):
	}
	i.close()
	<-written
	return syscall.EPIPE
}

// closeInput ends a request and, if requested, the program's input.
func (j *job) closeInput(p *running, end bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inputs--
	if end && j.run == p {
		j.inputEnded = true
		p.in.Close()
	}
}

// resize changes the size of a job's terminal.
func (j *job) resize(s hutch.Size) error {
	if err := s.Check(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.start.Terminal == nil:
		return hutch.Errorf(hutch.Unsupported, "the process %s has no terminal", j.start.ID)
	case j.run == nil:
		return noTerminal(j.start.ID)
	}
	rc, err := j.run.in.SyscallConn()
	if err != nil {
		return noTerminal(j.start.ID).Because(err)
	}
	cerr := rc.Control(func(fd uintptr) { err = setSize(int(fd), s) })
	if err = errors.Join(cerr, err); err != nil {
		return noTerminal(j.start.ID).Because(err)
	}
	j.rec.Terminal = &s
	return nil
}

func noTerminal(id string) *hutch.Error {
	return hutch.Errorf(hutch.Conflict, "the process %s has ended, and its terminal with it", id)
}

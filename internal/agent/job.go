package agent

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/linux/spawn"
	"hutch/internal/wire"
)

const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
	stable       = time.Minute // a run of that length resets the backoff
	maxShown     = 4 << 10     // bytes of a command in its record
)

// job is a detached process, over all its restarts.
type job struct {
	agent *agent
	start wire.Start
	log   ring
	stop  chan struct{} // closed when the job must not be started again
	over  chan struct{} // closed when the job has ended for good

	mu      sync.Mutex
	rec     wire.Process
	run     *running  // nil while the job does not run
	last    wire.Exit // how the previous run ended
	stopped bool      // stop is closed
	sent    syscall.Signal
	inputs  int // requests that write to the job
	// inputEnded is set when the input of this run has been closed.
	inputEnded bool
}

func newJob(a *agent, s wire.Start) *job {
	s.Detach = true
	return &job{agent: a, start: s, stop: make(chan struct{}), over: make(chan struct{}), rec: record(s), log: ring{room: a.jobs.room}}
}

// record returns the part of a job's record that is known before its start.
func record(s wire.Start) wire.Process {
	command := s.Command
	if command == "" {
		command = strings.ReplaceAll(strings.Join(s.Argv, " "), wire.SourceArg, s.SourceName)
	}
	return wire.Process{
		ID: s.ID, Name: s.Name, Command: clip(command, maxShown), Status: hutch.ProcessStarting,
		StartMS: time.Now().UnixMilli(), Restart: s.Restart, Terminal: s.Terminal, StopSignal: s.StopSignal, Health: unknownHealth(s),
	}
}

func (j *job) record() wire.Process {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rec
}

// startFirst starts the first run. An error means that the request was wrong; a program that cannot be executed counts
// as a failed run.
func (j *job) startFirst() error {
	p, err := j.launch()
	if err != nil && exitCode(err) == 0 {
		return unstarted(err)
	}
	j.agent.group.Go(func() { j.supervise(p, err) })
	return nil
}

// launch starts a run.
func (j *job) launch() (*running, error) {
	p, err := j.agent.launch(j.start)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.run, j.sent, j.inputEnded = p, 0, false
	j.rec.PID, j.rec.Status, j.rec.ExitCode = p.pid, hutch.ProcessRunning, nil
	p.readOutput(j.agent.logged, j.log.add)
	if j.start.Health != nil {
		j.rec.Health = unknownHealth(j.start)
		j.agent.group.Go(func() { j.watchHealth(p) })
	}
	if j.stopped { // the job was stopped after the decision to start it
		j.agent.group.Go(p.tree.kill)
	}
	return p, nil
}

// exitCode returns a shell's exit code for a program that cannot be executed, and 0 if an earlier step failed.
func exitCode(err error) int {
	e, ok := errors.AsType[*spawn.Error](err)
	switch {
	case !ok || e.Step != spawn.Exec || e.Errno == syscall.E2BIG:
		return 0
	case e.Errno == syscall.ENOENT:
		return 127
	}
	return 126
}

// supervise follows a job from its first run, or its failed start, to the end of its last run.
func (j *job) supervise(p *running, err error) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		began := time.Now()
		x := j.awaitRun(p, err)
		if time.Since(began) >= stable {
			backoff = firstBackoff
		}
		if !j.ended(x) || !j.pause(backoff) {
			break
		}
		p, err = j.launch()
	}
	j.makeFinal()
}

// awaitRun waits for the end of a run. A failed start counts as an end; the log says why.
func (j *job) awaitRun(p *running, err error) wire.Exit {
	if err != nil {
		j.log.add(wire.TypeStderr, []byte("hutch: "+hutch.AsError(unstarted(err)).Message+"\n"))
		return wire.Exit{State: hutch.ProcessFailed, Code: max(exitCode(err), 126)}
	}
	status := <-p.status
	p.awaitOutput()
	if p.memory.Load() {
		j.log.add(wire.TypeStderr, []byte("hutch: ended, since the sandbox reached its memory limit and this process used the most\n"))
	}
	if p.in != nil {
		p.in.Close()
	}
	p.clean()
	return exitOf(status)
}

// ended records how a run ended, and reports whether the job must run again.
func (j *job) ended(x wire.Exit) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.run, j.last = nil, x
	j.rec.PID = 0
	j.endHealthLocked()
	again := j.rec.Restart == hutch.RestartAlways || j.rec.Restart == hutch.RestartOnFailure && x.Code != 0
	if !again || j.stopped || j.sent != 0 && x.Signal == int(j.sent) {
		return false
	}
	j.rec.Status = hutch.ProcessStarting
	return true
}

// pause ends the remaining processes of the last run, and waits before the next run. It returns false if there must be
// no next run.
func (j *job) pause(d time.Duration) bool {
	j.leftovers().kill()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-j.stop:
		return false
	case <-timer.C:
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rec.Restarts++
	return true
}

// makeFinal records that the job has ended for good.
func (j *job) makeFinal() {
	j.mu.Lock()
	j.rec.Status, j.rec.ExitCode, j.rec.Signal = j.last.State, &j.last.Code, j.last.Signal
	j.rec.EndMS = time.Now().UnixMilli()
	j.mu.Unlock()
	close(j.over)
	j.log.close()
	j.agent.jobs.tidy()
	j.agent.idle.touch()
}

// leftovers returns the job's tree without a root.
func (j *job) leftovers() tree { return j.agent.tree(j.start.ID, func() int { return 0 }) }

// signal signals the job's tree. A signal that asks the job to end also ends its restarts; any other signal ends the
// restarts only if the job dies of it.
func (j *job) signal(sig syscall.Signal) {
	j.mu.Lock()
	j.sent = sig
	switch sig {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.Signal(j.start.StopSignal):
		if !j.stopped {
			j.stopped = true
			close(j.stop)
		}
	}
	t := j.leftovers()
	if j.run != nil {
		t = j.run.tree
	}
	j.mu.Unlock()
	t.signalAll(sig)
}

var errHungUp = errors.New("hung up")

// follower is an attach that follows the output.
type follower struct{ gone chan struct{} }

// attach sends the output of a job.
func (c *conn) attach(w *wire.Writer, a wire.Attach) error {
	j, err := c.agent.jobs.find(a.Process)
	if err != nil {
		return err
	}
	w.WriteJSON(wire.TypeStarted, j.record())
	f := &follower{make(chan struct{})}
	c.beginTask(f)
	c.agent.group.Go(func() {
		x, err := j.follow(w, a, f.gone)
		if err == nil {
			c.endTask()
			w.WriteJSON(wire.TypeExit, x)
		}
	})
	return nil
}

// follow sends output from a cursor on, and returns the last frame. Without Follow it sends only what exists at the
// start: a program that prints all the time would otherwise keep the reader for ever.
func (j *job) follow(w *wire.Writer, a wire.Attach, gone <-chan struct{}) (wire.Exit, error) {
	buf := make([]byte, wire.MaxChunk)
	cursor, told := max(a.Cursor, 0), int64(-1)
	if a.SinceMS > 0 {
		cursor = max(cursor, j.log.since(a.SinceMS))
	}
	now := j.log.last()
	for {
		if !a.Follow && cursor >= now {
			return j.exitFrame(min(cursor, j.log.last())), nil
		}
		v := j.log.read(cursor, buf, a.Times)
		if lost := v.cursor - cursor; lost > 0 {
			if err := w.WriteCount(wire.TypeGap, lost); err != nil {
				return wire.Exit{}, err
			}
		}
		cursor = v.cursor + int64(v.n)
		if v.n > 0 && a.Times && v.ms != told {
			told = v.ms
			if err := w.WriteCount(wire.TypeTime, told); err != nil {
				return wire.Exit{}, err
			}
		}
		if v.n > 0 {
			if err := w.WriteOutput(v.t, cursor, buf[:v.n]); err != nil {
				return wire.Exit{}, err
			}
			continue
		}
		if v.closed || !a.Follow {
			return j.exitFrame(cursor), nil
		}
		select {
		case <-v.changed:
		case <-gone:
			return wire.Exit{}, errHungUp
		}
	}
}

// exitFrame returns the frame that ends an attach at cursor.
func (j *job) exitFrame(cursor int64) wire.Exit {
	j.mu.Lock()
	defer j.mu.Unlock()
	x := wire.Exit{State: j.rec.Status}
	if !x.State.Live() {
		x = j.last
	}
	x.Cursor = cursor
	return x
}

func (f *follower) stdin([]byte) bool     { return true }
func (f *follower) stdinEnd()             {}
func (f *follower) signal(syscall.Signal) {}
func (f *follower) hangUp()               { close(f.gone) }

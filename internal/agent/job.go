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
	stable       = time.Minute // a run that long sets the backoff back
	maxShown     = 4 << 10     // bytes of a command in its record
)

// job is a detached process, over all its restarts.
type job struct {
	agent *agent
	start wire.Start
	log   ring
	stop  chan struct{} // closed when it shall not be started again

	mu      sync.Mutex
	rec     wire.Process
	run     *running // nil while it does not run
	stopped bool     // stop is closed
	sent    syscall.Signal
}

func newJob(a *agent, s wire.Start) *job {
	s.Detach = true
	return &job{agent: a, start: s, stop: make(chan struct{}), rec: record(s)}
}

// record is what is known of s before it starts.
func record(s wire.Start) wire.Process {
	command := s.Command
	if command == "" {
		command = strings.ReplaceAll(strings.Join(s.Argv, " "), wire.SourceArg, s.SourceName)
	}
	if len(command) > maxShown {
		command = strings.ToValidUTF8(command[:maxShown], "")
	}
	return wire.Process{
		ID: s.ID, Name: s.Name, Command: command, Status: hutch.ProcessStarting,
		StartMS: time.Now().UnixMilli(), Restart: s.Restart,
	}
}

func (j *job) record() wire.Process {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rec
}

// begin starts the first run. An error is one of the request; a program that
// cannot be executed is a run that failed.
func (j *job) begin() error {
	p, code, err := j.launch()
	if err != nil && code == 0 {
		return err
	}
	j.agent.group.Go(func() { j.supervise(p, wire.Exit{State: hutch.ProcessFailed, Code: code}) })
	return nil
}

// launch starts a run. A program that cannot be executed is in the log, and
// has the exit code that a shell gives for it.
func (j *job) launch() (p *running, code int, err error) {
	p, err = j.agent.launch(j.start)
	if err != nil {
		if e, ok := errors.AsType[*spawn.Error](err); ok && e.Step == spawn.Exec && e.Errno != syscall.E2BIG {
			code = 126
			if e.Errno == syscall.ENOENT {
				code = 127
			}
		}
		err = unstarted(err)
		if code != 0 {
			j.note(err)
		}
		return nil, code, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.run, j.sent = p, 0
	j.rec.PID, j.rec.Status, j.rec.ExitCode = p.pid, hutch.ProcessRunning, nil
	if j.stopped { // between two runs
		go p.tree.kill()
	}
	p.read(j.log.add)
	return p, 0, nil
}

// note writes what the agent has to say into the log.
func (j *job) note(err error) {
	j.log.add(wire.TypeStderr, []byte("hutch: "+hutch.AsError(err).Message+"\n"))
}

// supervise sees a job from its first run to its last. Without p the first run
// failed with x.
func (j *job) supervise(p *running, x wire.Exit) {
	backoff := firstBackoff
	for {
		began := time.Now()
		if p != nil {
			x = j.wait(p)
		}
		if time.Since(began) >= stable {
			backoff = firstBackoff
		}
		if !j.ended(x) || !j.pause(backoff) {
			break
		}
		backoff = min(2*backoff, maxBackoff)
		var err error
		if p, x.Code, err = j.launch(); err != nil && x.Code == 0 {
			j.note(err)
			x.Code = 126
		}
		x.State, x.Signal = hutch.ProcessFailed, 0
	}
	j.finish()
}

// wait waits for the end of a run.
func (j *job) wait(p *running) wire.Exit {
	status := <-p.status
	p.settle()
	p.clean()
	return exit(status)
}

// ended notes how a run ended, and reports whether another is due.
func (j *job) ended(x wire.Exit) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.run = nil
	j.rec.PID, j.rec.ExitCode = 0, &x.Code
	j.rec.Status = x.State
	again := j.rec.Restart == hutch.RestartAlways || j.rec.Restart == hutch.RestartOnFailure && x.Code != 0
	if !again || j.stopped || j.sent != 0 && x.Signal == int(j.sent) {
		return false
	}
	j.rec.Status = hutch.ProcessStarting
	return true
}

// pause waits before a restart and ends what the last run left behind. It
// reports false when there shall be no restart.
func (j *job) pause(d time.Duration) bool {
	newTree(j.start.ID, func() int { return 0 }).kill()
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
	return !j.stopped
}

// finish makes the end final.
func (j *job) finish() {
	j.mu.Lock()
	j.rec.EndMS = time.Now().UnixMilli()
	if j.rec.Status == hutch.ProcessStarting { // ended while it waited
		j.rec.Status = hutch.ProcessFailed
		if j.rec.ExitCode != nil && *j.rec.ExitCode == 0 {
			j.rec.Status = hutch.ProcessExited
		}
	}
	j.mu.Unlock()
	j.log.close()
	j.agent.jobs.tidy()
}

// signal signals the job's tree. One that asks it to end also ends its
// restarts; any other does so only if the job dies of it.
func (j *job) signal(sig syscall.Signal) {
	j.mu.Lock()
	j.sent = sig
	switch sig {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
		if !j.stopped {
			j.stopped = true
			close(j.stop)
		}
	}
	t := newTree(j.start.ID, func() int { return 0 })
	if j.run != nil {
		t = j.run.tree
	}
	j.mu.Unlock()
	t.signal(sig)
}

// follower is an attach.
type follower struct{ gone chan struct{} }

// attach sends the output of a job.
func (c *conn) attach(w *wire.Writer, a wire.Attach) error {
	j, err := c.agent.jobs.find(a.Process)
	if err != nil {
		return err
	}
	w.WriteJSON(wire.TypeStarted, j.record())
	f := &follower{make(chan struct{})}
	c.begin(f)
	c.agent.group.Go(func() {
		x, err := j.follow(w, a, f.gone)
		if err == nil {
			c.end()
			w.WriteJSON(wire.TypeExit, x)
		}
	})
	return nil
}

// follow sends output from a cursor on and returns the frame that ends it.
func (j *job) follow(w *wire.Writer, a wire.Attach, gone <-chan struct{}) (wire.Exit, error) {
	buf := make([]byte, wire.MaxChunk)
	cursor := max(a.Cursor, 0)
	for {
		v := j.log.read(cursor, buf)
		if lost := v.cursor - cursor; lost > 0 {
			if err := w.WriteCount(wire.TypeGap, lost); err != nil {
				return wire.Exit{}, err
			}
		}
		cursor = v.cursor + int64(v.n)
		if v.n > 0 {
			if err := w.WriteOutput(v.t, cursor, buf[:v.n]); err != nil {
				return wire.Exit{}, err
			}
			continue
		}
		if v.closed || !a.Follow {
			return j.exit(cursor), nil
		}
		select {
		case <-v.changed:
		case <-gone:
			return wire.Exit{}, errors.New("hung up")
		}
	}
}

func (j *job) exit(cursor int64) wire.Exit {
	rec := j.record()
	x := wire.Exit{State: rec.Status, Cursor: cursor}
	if rec.ExitCode != nil && !rec.Status.Live() {
		x.Code = *rec.ExitCode
	}
	return x
}

func (f *follower) stdin([]byte) bool     { return true }
func (f *follower) stdinEnd()             {}
func (f *follower) signal(syscall.Signal) {}
func (f *follower) hangUp()               { close(f.gone) }

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/wire"
)

// If an interrupt has no effect, the run is killed: first the processes that it started, then the interpreter. All of
// that is faster than the daemon's time limit.
const (
	heedTime  = 300 * time.Millisecond
	leaveTime = time.Second
)

// codeRun is one run in a context, including the time in which it waits.
type codeRun struct {
	peer
	req       wire.Run
	user      user          // user of the context
	interrupt chan struct{} // holds a token when the run should be interrupted
	over      chan int      // the exit code, once
	dir       string        // dir of its files
	pipe      *os.File      // the pipe that feed writes to
	keep      *os.File      // keeps the pipe open until the interpreter has opened it
}

// runCode puts a run into the queue of its context.
func (c *conn) runCode(w *wire.Writer, req wire.Run) error {
	if len(req.ID) < 16 || len(req.ID) > 64 || strings.ContainsAny(req.ID, "\n\x00") {
		return hutch.Errorf(hutch.Invalid, "a run's id has 16 to 64 characters")
	}
	ctx, err := c.agent.contexts.find(req.Context)
	if err != nil {
		return err
	}
	r := &codeRun{peer: peer{conn: c, w: w, gone: make(chan struct{})}, req: req, interrupt: make(chan struct{}, 1), over: make(chan int, 1)}
	if r.user, err = c.agent.userOf(ctx.req.User); err != nil {
		return err
	}
	if err := r.files(); err != nil {
		return err
	}
	w.WriteJSON(wire.TypeStarted, ctx.info())
	c.beginTask(r)
	if r.feed != nil {
		c.agent.group.Go(func() { r.feed.writeTo(r.pipe) })
	}
	if err := ctx.addRun(r); err != nil {
		r.refuse(err)
	}
	return nil
}

// files makes the run's files, and writes their paths into its input.
func (r *codeRun) files() (err error) {
	if r.req.Source == "" && !r.req.Stdin {
		return nil
	}
	source, err := r.user.writeSource(r.req.Source, "code")
	if err != nil {
		return err
	}
	r.dir = folder(source)
	paths := []string{wire.SourceArg, source}
	if r.req.Stdin {
		stdin := filepath.Join(r.dir, "stdin")
		if r.pipe, r.keep, err = r.user.fifo(r.dir, "stdin"); err != nil {
			r.discard()
			return noRoom(err)
		}
		r.feed = newFeed(r.w)
		paths = append(paths, wire.StdinArg, stdin)
	}
	r.req.Input = strings.NewReplacer(paths...).Replace(r.req.Input)
	r.req.Source = ""
	return nil
}

// folder returns the folder of a source file, or "" if there is no source file.
func folder(source string) string {
	if source == "" {
		return ""
	}
	return filepath.Dir(source)
}

// fifo creates a named pipe that the user can read, and opens it twice, each time for reading and writing. So no open
// blocks, and the pipe has a reader until both descriptors are closed. It is created with the user's rights, because
// the folder is the user's.
func (u user) fifo(dir, name string) (pipe, keep *os.File, err error) {
	fd := -1
	err = u.do(func() (err error) {
		fd, err = openFIFO(filepath.Join(dir, name))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	pipe = os.NewFile(uintptr(fd), "stdin")
	second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		pipe.Close()
		return nil, nil, err
	}
	return pipe, os.NewFile(uintptr(second), "stdin"), nil
}

func openFIFO(path string) (int, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return -1, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return -1, errors.Join(err, errors.New("it was exchanged"))
	}
	return fd, nil
}

func (r *codeRun) discard() {
	if r.feed != nil {
		r.feed.close()
		r.keep.Close()
		r.pipe.Close()
	}
	r.user.removeSource(r.dir)
}

// in runs r in an interpreter, and returns when the run has ended.
func (r *codeRun) in(i *interpreter, runs int, deleted <-chan struct{}) wire.RunEnd {
	fresh := !i.used
	r.w.WriteJSON(wire.TypeBegun, wire.Begun{Fresh: fresh})
	i.setRun(r)
	i.agent.group.Go(func() { i.control.WriteString(r.req.Input) })
	end := r.watch(i, deleted)
	end.Memory = i.memory.Load() && !end.TimedOut
	i.leave()
	end.Runs = runs
	return end
}

// watch waits for the end of the run. A time limit, an interrupt, a hang-up or the end of the context forces the end.
func (r *codeRun) watch(i *interpreter, deleted <-chan struct{}) wire.RunEnd {
	var late <-chan time.Time
	if r.req.TimeoutMS > 0 {
		timer := time.NewTimer(time.Duration(min(r.req.TimeoutMS, maxTimeout)) * time.Millisecond)
		defer timer.Stop()
		late = timer.C
	}
	end := wire.RunEnd{}
	select {
	case code := <-r.over:
		end.Code = code
		return end
	case <-i.done:
		return r.lost(i, end)
	case <-late:
		end.TimedOut = true
	case <-r.interrupt:
	case <-r.gone:
	case <-deleted:
		i.tree.kill()
	}
	return r.stopRun(i, end)
}

// stopRun interrupts the run, and kills it if that has no effect.
func (r *codeRun) stopRun(i *interpreter, end wire.RunEnd) wire.RunEnd {
	tree := i.tree
	for _, step := range []struct {
		do   func()
		wait time.Duration
	}{
		{i.interrupt, heedTime},
		{i.killBegun, heedTime},
		{i.interrupt, leaveTime},
		{tree.kill, killTime},
	} {
		step.do()
		select {
		case end.Code = <-r.over:
			if end.TimedOut {
				i.killBegun() // children that the interpreter did not wait for
			}
			return end
		case <-i.done:
			tree.kill() // descendants of the interpreter
			return r.lost(i, end)
		case <-time.After(step.wait):
		}
	}
	return r.lost(i, end)
}

// lost reports the end of a run whose interpreter has ended.
func (r *codeRun) lost(i *interpreter, end wire.RunEnd) wire.RunEnd {
	select {
	case end.Code = <-r.over: // the run ended before the interpreter
	default:
		end.Ended, end.Code, end.Signal = true, 128+int(syscall.SIGKILL), int(syscall.SIGKILL)
		if i.gone() {
			x := exitOf(i.status)
			end.Code, end.Signal = x.Code, x.Signal
		}
	}
	return end
}

// finishRun reports how the run ended and frees its resources.
func (r *codeRun) finishRun(end wire.RunEnd) {
	r.discard()
	r.sendLast(func() {
		end.Cursor = r.cursor
		r.w.WriteJSON(wire.TypeExit, end)
	})
}

// refuse ends a run that has not started.
func (r *codeRun) refuse(err error) {
	r.discard()
	r.fail(err)
}

// message sends a piece of a message to the client.
func (r *codeRun) message(piece []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.w.Write(wire.TypeMessage, piece)
	}
}

// finished handles the interpreter's message that the run has ended.
func (r *codeRun) finished(code []byte) {
	n, err := strconv.ParseUint(string(code), 10, 8)
	if err != nil {
		return
	}
	select {
	case r.over <- int(n):
	default:
	}
}

// opened handles the interpreter's message that it has opened the run's stdin.
func (r *codeRun) opened() {
	if r.keep != nil {
		r.keep.Close()
	}
}

// requestEnd requests the end of the run.
func (r *codeRun) requestEnd() {
	select {
	case r.interrupt <- struct{}{}:
	default:
	}
}

func (r *codeRun) signal(syscall.Signal) { r.requestEnd() }

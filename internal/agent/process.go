package agent

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/linux/spawn"
	"hutch/internal/wire"
)

// sink takes output in the order in which it was read. It can block, and then the program's pipe fills up.
type sink func(t wire.Type, data []byte)

// running is a process that was started.
type running struct {
	agent   *agent
	user    user
	tree    tree
	pid     int
	status  <-chan syscall.WaitStatus // sends one value
	ended   atomic.Bool               // the root was reaped; its pid can be reused
	in      *os.File                  // nil without stdin
	outs    []*os.File                // stdout and stderr, or a terminal
	over    chan struct{}             // closed when the root has ended
	source  string                    // folder of the source file, which is removed at the end
	drained sync.WaitGroup            // both outputs are read up to the end of the root
	// keeps is set if the root holds state that outlives the programs that it starts. When memory is short, the root
	// is killed only if it uses more memory than these programs.
	keeps  bool
	memory atomic.Bool // a process of the tree was killed because of the memory limit
}

// launch starts s, whose fields have been checked.
func (a *agent) launch(s wire.Start) (*running, error) {
	u, err := a.userFor(s)
	if err != nil {
		return nil, err
	}
	source, err := u.source(s)
	if err != nil {
		return nil, err
	}
	return a.launchOn(s, u, source)
}

// launchOn starts s as a user. The source file then belongs to the process.
func (a *agent) launchOn(s wire.Start, u user, source string) (p *running, err error) {
	p = &running{agent: a, user: u, over: make(chan struct{})}
	if source != "" {
		p.source = filepath.Dir(source)
	}
	p.tree = a.tree(s.ID, p.root)
	var files [3]int
	if s.Terminal != nil {
		files, err = p.terminal(*s.Terminal)
	} else {
		files, err = p.pipes(s.Stdin)
	}
	if err == nil {
		err = p.exec(a.commands(s, u, source), files)
		a.closeAll(files)
	}
	if err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

// source writes the source of s to a file, and returns the file's path; "" if s has no source. It also writes a command
// line that is too long for an argument.
func (u user) source(s wire.Start) (string, error) {
	switch {
	case s.Source != "" || s.SourceName != "":
		return u.writeSource(s.Source, s.SourceName)
	case len(s.Command) > maxArg:
		return u.writeSource(s.Command, "command")
	}
	return "", nil
}

// root returns the pid of the root while it is alive.
func (p *running) root() int {
	if p.ended.Load() {
		return 0
	}
	return p.pid
}

// exec tries commands until one can be executed. If none can, the error is that of the first command: in an image
// without a shell, that command is the program that the caller has named.
func (p *running) exec(cs []spawn.Command, files [3]int) error {
	var first error
	for _, c := range cs {
		c.Files = files
		var err error
		p.pid, p.status, err = p.agent.children.start(c, p.tree.mark)
		e, ok := errors.AsType[*spawn.Error](err)
		if !ok || e.Step != spawn.Exec || e.Errno == syscall.E2BIG {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// pipes creates the process's pipes and returns its ends.
func (p *running) pipes(stdin bool) (files [3]int, err error) {
	files = [3]int{int(p.agent.null.Fd()), -1, -1}
	defer func() {
		if err != nil {
			p.agent.closeAll(files)
			err = hutch.Errorf(hutch.Exhausted, "the agent has too many open files: end some processes").Because(err)
		}
	}()
	if stdin {
		if p.in, files[0], err = p.pipe("stdin", 1); err != nil {
			return files, err
		}
	}
	for i, name := range [...]string{"stdout", "stderr"} {
		var f *os.File
		if f, files[i+1], err = p.pipe(name, 0); err != nil {
			return files, err
		}
		p.outs = append(p.outs, f)
	}
	return files, nil
}

// pipe creates a pipe. Its end `mine` is for the agent, and does not block. The owner of the pipe is the command's
// user, who can open it again as /dev/stdout.
func (p *running) pipe(name string, mine int) (*os.File, int, error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	unix.FcntlInt(uintptr(fd[mine]), unix.F_SETFL, unix.O_NONBLOCK)
	p.user.own(fd[mine])
	return os.NewFile(uintptr(fd[mine]), name), fd[1-mine], nil
}

// closeAll closes a child's files in the agent, except the null device, which all of them share.
func (a *agent) closeAll(files [3]int) {
	for _, fd := range files {
		if fd >= 0 && fd != int(a.null.Fd()) {
			syscall.Close(fd)
		}
	}
}

// discard frees the resources of a process that did not start.
func (p *running) discard() {
	p.closeOuts()
	if p.in != nil {
		p.in.Close()
	}
	p.clean()
}

func (p *running) closeOuts() {
	for _, f := range p.outs {
		f.Close()
	}
}

// clean removes the source file.
func (p *running) clean() { p.user.removeSource(p.source) }

// readOutput starts to pass output to out, no faster than rate allows, until the last process has closed the pipes.
func (p *running) readOutput(rate *pace, out sink) {
	p.agent.track(p)
	out = rate.of(out)
	p.drained.Add(len(p.outs))
	open := atomic.Int32{}
	open.Store(int32(len(p.outs)))
	for i, f := range p.outs {
		t := [...]wire.Type{wire.TypeStdout, wire.TypeStderr}[i]
		p.agent.group.Go(func() {
			p.pump(f, t, out)
			if open.Add(-1) == 0 {
				p.agent.untrack(p)
			}
		})
	}
}

// awaitOutput is called when the root has ended. It returns when the root's output has been passed on.
func (p *running) awaitOutput() {
	p.ended.Store(true)
	close(p.over)
	now := time.Unix(1, 0) // a time in the past wakes the pump, which then reads the rest
	if len(p.outs) == 1 {
		now = time.Now().Add(hangUpTime)
	}
	for _, f := range p.outs {
		f.SetReadDeadline(now)
	}
	p.drained.Wait()
}

// pump passes the output in f to out. When the root ends, the deadline of f expires. pump then passes on what the pipe
// contains at that time, and reports the output as drained.
func (p *running) pump(f *os.File, t wire.Type, out sink) {
	defer f.Close()
	drained := sync.OnceFunc(p.drained.Done)
	defer drained()
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	for {
		err := transfer(rc, t, out, -1)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		rest := 0
		rc.Control(func(fd uintptr) { rest, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		f.SetReadDeadline(time.Time{})
		if rest > 0 {
			if err := transfer(rc, t, out, rest); err != nil {
				return
			}
		}
		drained()
	}
}

var buffers = sync.Pool{New: func() any { return new([wire.MaxChunk]byte) }}

// errEnd says that a pipe has no writers left.
var errEnd = errors.New("end of output")

// transfer passes at least limit bytes of a pipe to out, or everything to its end if limit is negative. It holds a
// buffer only while there is data.
func transfer(rc syscall.RawConn, t wire.Type, out sink, limit int) error {
	for done := 0; limit < 0 || done < limit; {
		var fail error
		err := rc.Read(func(fd uintptr) bool {
			buf := buffers.Get().(*[wire.MaxChunk]byte)
			defer buffers.Put(buf)
			n, err := ignoringEINTR(func() (int, error) { return syscall.Read(int(fd), buf[:]) })
			switch {
			case err == syscall.EAGAIN:
				return false
			case err != nil:
				fail = err
			case n == 0:
				fail = errEnd
			default:
				done += n
				out(t, buf[:n])
			}
			return true
		})
		if err = errors.Join(err, fail); err != nil {
			return err
		}
	}
	return nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// exitOf describes how a process ended, from the wait status of its root.
func exitOf(status syscall.WaitStatus) wire.Exit {
	x := wire.Exit{State: hutch.ProcessFailed, Code: status.ExitStatus()}
	if status.Signaled() {
		x.Signal = int(status.Signal())
		x.Code = 128 + x.Signal
	}
	if x.Code == 0 {
		x.State = hutch.ProcessExited
	}
	return x
}

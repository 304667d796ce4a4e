package agent

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/wire"
)

// interpreter is the process of a context. Its standard input is a socket, on which
// it reads requests and writes answers. The run's id marks answers, because user
// code can write to the socket too:
//
//	agent        lines of a run's input; "ack N"
//	interpreter  LF, id, kind, text, LF. The kinds are + and . for a piece and
//	             the last piece of a message, ! with a number for an ack when
//	             all output so far is read, < when standard input is open, $
//	             with an exit code for the end. A spare one (see spare.go)
//	             writes ^ with its process's id when it is prepared
//
// Other lines are dropped: user code can write to any descriptor that it finds.
type interpreter struct {
	*running
	mark      string // id of the process
	control   *os.File
	ready     chan struct{} // holds a token when a spare interpreter is prepared
	taps      [2]*tap
	done      chan struct{} // closed when it has ended and all its output is read
	status    syscall.WaitStatus
	used      bool         // it has executed a run
	leftovers map[int]bool // processes that earlier runs left behind

	// The present run; nil between runs, when further output is dropped.
	mu      sync.Mutex
	current *codeRun
}

// interpret starts the interpreter of a context.
func (a *agent) interpret(c wire.Context, mark string) (*interpreter, error) {
	s := wire.Start{ID: mark, Argv: c.Argv, Source: c.Source, SourceName: c.SourceName, Dir: c.Dir, Env: c.Env, User: c.User}
	if err := checkStart(s); err != nil {
		return nil, err
	}
	p, control, err := a.launchControlled(s)
	if err != nil {
		return nil, unstarted(err)
	}
	i := &interpreter{running: p, mark: mark, control: control, ready: make(chan struct{}, 1), done: make(chan struct{})}
	out := a.attached.of(i.output)
	for n, t := range [...]wire.Type{wire.TypeStdout, wire.TypeStderr} {
		i.taps[n] = newTap(p.outs[n], t, out)
		a.group.Go(i.taps[n].readPipe)
	}
	a.track(p)
	a.group.Go(i.readAnswers)
	a.group.Go(i.awaitExit)
	a.group.Go(func() { // a process that the interpreter left behind can keep its pipes open for long
		<-i.taps[0].end
		<-i.taps[1].end
		a.untrack(p)
	})
	return i, nil
}

// launchControlled does the same as launch, with a socket for standard input.
func (a *agent) launchControlled(s wire.Start) (_ *running, control *os.File, err error) {
	u, err := a.userOf(s.User)
	if err != nil {
		return nil, nil, err
	}
	source, err := u.source(s)
	if err != nil {
		return nil, nil, err
	}
	p := &running{agent: a, user: u, source: folder(source), keeps: true}
	p.tree = a.tree(s.ID, p.root)
	files, err := p.pipes(false)
	if err == nil {
		control, err = takeSocket(&files[0])
	}
	if err == nil {
		err = p.exec(a.commands(s, u, source), files)
		p.agent.closeAll(files)
	}
	if err != nil {
		if control != nil {
			control.Close()
		}
		p.discard()
		return nil, nil, err
	}
	return p, control, nil
}

// takeSocket makes a pair of sockets, replaces fd by one of them and returns the other. The old fd is the null device,
// which stays open because other processes use it.
func takeSocket(fd *int) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	*fd = pair[1]
	unix.SetNonblock(pair[0], true)
	return os.NewFile(uintptr(pair[0]), "control"), nil
}

// awaitExit waits for the end of the process.
func (i *interpreter) awaitExit() {
	i.status = <-i.running.status
	i.ended.Store(true)
	i.drain()
	close(i.done)
	i.control.Close() // also if another process holds the other end
	i.clean()
}

// gone reports whether the process has ended.
func (i *interpreter) gone() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// setRun makes r the present run.
func (i *interpreter) setRun(r *codeRun) {
	i.leftovers = map[int]bool{}
	if i.hasChildren() {
		for _, pid := range i.tree.members() {
			i.leftovers[pid] = true
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.memory.Store(false)
	i.current, i.used = r, true
}

// leave ends the present run.
func (i *interpreter) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current = nil
}

// hasChildren reports whether processes of earlier runs are left: they would be the interpreter's descendants, because
// it is a subreaper. Such processes are rare, and examining all processes takes longer than most runs.
func (i *interpreter) hasChildren() bool {
	if !i.used {
		return false
	}
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(i.pid) + "/task/*/children")
	for _, list := range lists {
		if children, err := os.ReadFile(list); err != nil || len(children) > 0 {
			return true
		}
	}
	return len(lists) == 0 // this kernel has no such file
}

// begun lists the processes that the current run has started.
func (i *interpreter) begun() []int {
	return slices.DeleteFunc(i.tree.members(), func(pid int) bool { return pid == i.pid || i.leftovers[pid] })
}

// interrupt acts like Ctrl-C. It signals the interpreter first, because a shell reacts differently if only its child is
// signalled.
func (i *interpreter) interrupt() {
	if root := i.root(); root != 0 {
		syscall.Kill(root, syscall.SIGINT)
	}
	for _, pid := range i.begun() {
		syscall.Kill(pid, syscall.SIGINT)
	}
}

// killBegun kills the processes that the current run has started.
func (i *interpreter) killBegun() {
	for end := time.Now().Add(heedTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		pids := i.begun()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (i *interpreter) output(t wire.Type, data []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil {
		i.current.output(t, data)
	}
}

// drain returns when all output up to now has been read.
func (i *interpreter) drain() {
	for _, t := range i.taps {
		t.drain()
	}
}

// readAnswers reads the interpreter's answers to their end.
func (i *interpreter) readAnswers() {
	r := bufio.NewReaderSize(i.control, wire.MaxPiece+256)
	for skip := false; ; {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			skip = true
		case err != nil:
			return
		case skip:
			skip = false
		default:
			i.answer(line[:len(line)-1])
		}
	}
}

// answer handles one line.
func (i *interpreter) answer(line []byte) {
	i.mu.Lock()
	r := i.current
	i.mu.Unlock()
	if r == nil {
		i.prepared(line)
		return
	}
	text, ok := bytes.CutPrefix(line, []byte(r.req.ID))
	if !ok || len(text) == 0 {
		return
	}
	switch kind := text[0]; kind {
	case '+', '.':
		r.message(text)
	case '!':
		i.drain()
		i.control.Write(append(append([]byte("ack "), text[1:]...), '\n'))
	case '<':
		r.opened()
	case '$':
		i.drain()
		r.finished(text[1:])
	}
}

// tap reads a pipe, and knows when it has read everything written before a given moment.
type tap struct {
	f       *os.File
	t       wire.Type
	out     sink
	mu      sync.Mutex // only one drain runs at a time
	drained chan struct{}
	end     chan struct{} // closed when the output has ended
}

func newTap(f *os.File, t wire.Type, out sink) *tap {
	return &tap{f: f, t: t, out: out, drained: make(chan struct{}), end: make(chan struct{})}
}

func (t *tap) readPipe() {
	defer close(t.end)
	defer t.f.Close()
	rc, err := t.f.SyscallConn()
	if err != nil {
		return
	}
	for {
		if err := transfer(rc, t.t, t.out, -1); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		rest := 0
		rc.Control(func(fd uintptr) { rest, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		t.f.SetReadDeadline(time.Time{})
		if rest > 0 {
			if err := transfer(rc, t.t, t.out, rest); err != nil {
				return
			}
		}
		t.drained <- struct{}{}
	}
}

// drain waits until the present content of the pipe is read.
func (t *tap) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f.SetReadDeadline(time.Unix(1, 0)) != nil {
		return // closed
	}
	select {
	case <-t.drained:
	case <-t.end:
	}
}

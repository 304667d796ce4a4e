package main

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"hutch"
)

// keyboard is the standard input of code that runs at a terminal. It reads a line only when the code asks for one,
// because other lines can be input for hutch itself.
type keyboard struct {
	in     *os.File
	lines  *io.PipeReader // for the code
	typed  *io.PipeWriter
	over   *os.File // closed when the code has ended, which ends a read of a line
	gone   *os.File
	tasks  sync.WaitGroup
	asking sync.Mutex
}

func newKeyboard(in *os.File) (*keyboard, error) {
	gone, over, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	k := &keyboard{in: in, over: over, gone: gone}
	k.lines, k.typed = io.Pipe()
	return k, nil
}

// close ends the reading of a line that is no longer needed.
func (k *keyboard) close() {
	k.over.Close()
	k.lines.Close()
	k.tasks.Wait()
	k.gone.Close()
}

// ask reads a line for the code, without waiting for it.
func (k *keyboard) ask(req hutch.InputRequest) {
	k.tasks.Go(func() {
		k.asking.Lock()
		defer k.asking.Unlock()
		if req.Password {
			defer hideInput(int(k.in.Fd()))()
		}
		k.read()
	})
}

// read passes on a line, or the end of the input.
func (k *keyboard) read() {
	fds := []unix.PollFd{{Fd: int32(k.in.Fd()), Events: unix.POLLIN}, {Fd: int32(k.gone.Fd())}}
	for {
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		}
		break
	}
	if fds[1].Revents != 0 {
		return
	}
	line := make([]byte, 4<<10) // the longest line of a terminal
	n, err := k.in.Read(line)
	if err != nil {
		k.typed.Close() // Ctrl-D
		return
	}
	k.typed.Write(line[:n])
}

// hideInput hides typed text, except the end of the line.
func hideInput(fd int) (restore func()) {
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	t := *old
	t.Lflag = t.Lflag&^unix.ECHO | unix.ECHONL
	unix.IoctlSetTermios(fd, unix.TCSETS, &t)
	return func() { unix.IoctlSetTermios(fd, unix.TCSETS, old) }
}

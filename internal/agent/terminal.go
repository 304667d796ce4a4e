package agent

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
)

const (
	// terminalType is the kind of terminal that programs get in TERM.
	terminalType = "xterm-256color"
	// hangUpTime is how long the rest of a terminal's output can take after its session's leader has ended. On Linux,
	// the kernel then hangs up, and the output arrives at once; gVisor leaves terminals open for the remaining
	// processes.
	hangUpTime = 100 * time.Millisecond
)

// terminal opens a new terminal and makes its near end the input and output of p. It returns the far end, three
// times.
func (p *running) terminal(size hutch.Size) (files [3]int, err error) {
	files = [3]int{-1, -1, -1}
	defer func() {
		if err != nil {
			p.agent.closeAll(files)
			err = hutch.Errorf(hutch.Unavailable, "no terminal can be opened in this sandbox: too many may be open").Because(fmt.Errorf("open terminal: %w", err))
		}
	}()
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return files, err
	}
	near := os.NewFile(uintptr(fd), "terminal")
	p.outs = []*os.File{near}
	if files[0], err = p.farEnd(fd); err != nil {
		return files, err
	}
	if err := setSize(fd, size); err != nil {
		return files, err
	}
	for i := 1; i < 3; i++ {
		if files[i], err = unix.FcntlInt(uintptr(files[0]), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return files, err
		}
	}
	p.in, err = duplicate(near)
	return files, err
}

// farEnd opens the programs' end of the terminal fd, and makes the programs' user its owner. It does not open the
// terminal by name, because the same name can mean another terminal to the agent.
func (p *running) farEnd(fd int) (int, error) {
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	far, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	p.user.own(int(far))
	if t, err := unix.IoctlGetTermios(int(far), unix.TCGETS); err == nil {
		t.Iflag |= unix.IUTF8 // erase whole characters
		unix.IoctlSetTermios(int(far), unix.TCSETS, t)
	}
	return int(far), nil
}

func setSize(fd int, s hutch.Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(s.Columns), Row: uint16(s.Rows)})
}

// duplicate returns another descriptor of the same open file. Closing the duplicate ends calls that wait on it, but
// not those that wait on f.
func duplicate(f *os.File) (*os.File, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := rc.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) })
	if cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

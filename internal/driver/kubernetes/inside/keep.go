package inside

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"hutch/internal/tarball"
)

// The files of an instance can be kept without its agent, because a daemon of another version perhaps does not speak
// the agent's protocol. The second process does that in addition to the agent's work. On a request, which comes with a
// descriptor, it stops all programs and writes their folders to the descriptor.

// files asks the second process for the files.
func (p *pod) files(w io.Writer) error {
	p.packing.Lock()
	defer p.packing.Unlock()
	p.mu.Lock()
	keeper, folders := p.keeper, p.folders
	p.mu.Unlock()
	if keeper == nil {
		return errors.New("this pod has no instance")
	}
	r, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	_, _, err = keeper.WriteMsgUnix([]byte(strings.Join(folders, "\x00")), unix.UnixRights(int(out.Fd())), nil)
	out.Close()
	if err != nil {
		return fmt.Errorf("ask for the files: %w", err)
	}
	_, err = io.Copy(w, r)
	r.Close()
	said := make([]byte, 4<<10)
	n, rerr := keeper.Read(said)
	if err := errors.Join(err, rerr); err != nil {
		return err
	}
	if n > 0 && string(said[:n]) != packed {
		return errors.New(string(said[:n]))
	}
	return nil
}

// packed is the answer to a request that succeeded.
const packed = "packed"

// keep answers requests for the files.
func keep(control *net.UnixConn) {
	folders, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	for {
		n, r, _, _, err := control.ReadMsgUnix(folders, rights)
		if err != nil || n == 0 {
			return
		}
		said := packed
		if err := packTo(rights[:r], strings.Split(string(folders[:n]), "\x00")); err != nil {
			said = err.Error()
		}
		control.Write([]byte(said))
	}
}

func packTo(rights []byte, folders []string) error {
	fds, err := descriptors(rights) // the buffer has space for one descriptor
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fds[0]), "files")
	defer out.Close()
	stopAll()
	if err := tarball.PackFolders(out, "/", folders...); err != nil {
		continueAll()
		return err
	}
	return nil
}

// mostRounds bounds how often stopAll looks for new programs.
const mostRounds = 64

// stopAll stops all processes of users. Our own processes belong to root.
func stopAll() {
	for range mostRounds {
		if signalUsers(syscall.SIGSTOP) == 0 {
			return
		}
	}
}

func continueAll() { signalUsers(syscall.SIGCONT) }

// signalUsers signals the processes of users, and returns how many of them were not stopped before.
func signalUsers(sig syscall.Signal) (moving int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		state, ours := look(e.Name())
		if ours {
			continue
		}
		if !strings.Contains("TZX", state) {
			moving++
		}
		syscall.Kill(pid, sig)
	}
	return moving
}

// look returns the state of a process, such as "R", and whether it is ours. It is ours if its real and its effective
// user are root, or if it is gone.
func look(pid string) (state string, ours bool) {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return "", true
	}
	for line := range strings.Lines(string(text)) {
		key, rest, _ := strings.Cut(line, ":")
		switch fields := strings.Fields(rest); {
		case key == "State" && len(fields) > 0:
			state = fields[0]
		case key == "Uid" && len(fields) > 1:
			ours = fields[0] == "0" && fields[1] == "0"
		}
	}
	return state, ours
}

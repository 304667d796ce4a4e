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

// The files of an instance can be kept without its agent, whose protocol another version of the daemon may not speak. The
// second process does that beside the agent: on a request, which comes with a descriptor, it stops all programs and
// writes their folders to the descriptor.

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
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d descriptors: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	unix.CloseOnExec(fds[0])
	out := os.NewFile(uintptr(fds[0]), "files")
	defer out.Close()
	stopAll()
	if err := tarball.PackFolders(out, "/", folders...); err != nil {
		continueAll()
		return err
	}
	return nil
}

// mostRounds bounds how often programs are looked for that were born meanwhile.
const mostRounds = 64

// stopAll stops all processes of users. Ours belong to root.
func stopAll() {
	for range mostRounds {
		if signalUsers(syscall.SIGSTOP) == 0 {
			return
		}
	}
}

func continueAll() { signalUsers(syscall.SIGCONT) }

// signalUsers signals the processes of users, and returns to how many that were not stopped before.
func signalUsers(sig syscall.Signal) (moving int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+e.Name(), &st) != nil || st.Uid == 0 && !othersProcess(e.Name()) {
			continue
		}
		if !stopped(e.Name()) {
			moving++
		}
		syscall.Kill(pid, sig)
	}
	return moving
}

// othersProcess reports whether a process belongs to a user, although its folder belongs to root because it cannot be
// traced.
func othersProcess(pid string) bool { return statusOf(pid, "Uid:") != "0" }

func stopped(pid string) bool { s := statusOf(pid, "State:"); return s == "T" || s == "Z" || s == "X" }

// statusOf is the first word of a line of a process's status.
func statusOf(pid, key string) string {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return "X" // it is gone
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return fields[0]
			}
		}
	}
	return ""
}

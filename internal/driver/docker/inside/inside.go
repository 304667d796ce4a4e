// Package inside prepares a container from inside, before its first process becomes
// the agent.
package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch/internal/wire"
)

// Boot reads the first message from standard input, and listens where the message says. After that, standard input is
// the null device. The returned message has the listener's descriptor as its address.
func Boot() (wire.Boot, error) {
	var boot wire.Boot
	if err := json.NewDecoder(os.Stdin).Decode(&boot); err != nil {
		return boot, fmt.Errorf("read the boot message from standard input: %w", err)
	}
	err := errors.Join(leaveInput(), limitFiles(), inherit())
	if err != nil {
		return boot, err
	}
	fd, err := listen(strings.TrimPrefix(boot.Listen, "unix:"))
	boot.Listen = fmt.Sprintf("fd:%d", fd)
	return boot, err
}

// leaveInput closes the pipe of the engine at standard input.
func leaveInput() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return unix.Dup3(int(null.Fd()), 0, 0)
}

// mostFiles bounds the open files of a process.
const mostFiles = 1 << 16

// limitFiles lowers the limit of open files. It never raises the limit that the engine has set.
func limitFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Max = min(l.Max, mostFiles)
	l.Cur = min(l.Cur, l.Max)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

// listen makes the socket that the daemon connects to, with permissions for any user: only its folder is closed to
// other users.
func listen(path string) (int, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return -1, err
	}
	unixListener := ln.(*net.UnixListener)
	unixListener.SetUnlinkOnClose(false)
	defer ln.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		return -1, err
	}
	file, err := unixListener.File()
	if err != nil {
		return -1, err
	}
	defer file.Close()
	return unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
}

// inherit lets the agent pass on the right to read all files to the program that saves files (spawn.Command.ReadAll).
// No other program gets this right.
func inherit() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = data[0].Permitted&(1<<unix.CAP_DAC_READ_SEARCH), 0
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("pass on the right to read files: %w", errno)
	}
	return nil
}

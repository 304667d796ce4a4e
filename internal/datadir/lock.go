package datadir

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/durable"
)

// lockTime is how long LockPatiently tries: a client takes the lock for an instant to check whether a server is
// running.
const lockTime = time.Second

func lockFile(dir string) string { return filepath.Join(dir, "lock") }

// Lock takes the lock of a folder. free is false if the lock is held, by another
// process or in this one. The kernel frees the lock when the file is closed, so
// also when the process dies.
func Lock(dir string) (f *os.File, free bool, err error) {
	f, err = os.OpenFile(lockFile(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, false, err
}

// LockPatiently does the same as Lock, repeated for up to a second.
func LockPatiently(dir string) (f *os.File, free bool, err error) {
	for end := time.Now().Add(lockTime); ; {
		if f, free, err = Lock(dir); free || err != nil || time.Now().After(end) {
			return f, free, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// HasLock reports whether a process has the lock file of a folder open. If not, the process id in the folder's address
// belongs to another program by now.
func HasLock(pid int, dir string) bool {
	want, err := os.Stat(lockFile(dir))
	if err != nil {
		return false
	}
	fds, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	for _, fd := range fds {
		if got, err := os.Stat(fd); err == nil && os.SameFile(got, want) {
			return true
		}
	}
	return false
}

// Address is the address of a running server, from its folder.
type Address struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

func addressFile(dir string) string { return filepath.Join(dir, "address") }

// WriteAddress writes the address of this process's server to the server's folder.
// The server must hold the lock.
func WriteAddress(dir, url string) error {
	b, err := json.Marshal(Address{url, os.Getpid()})
	if err != nil {
		return err
	}
	return durable.Replace(addressFile(dir), b)
}

// RemoveAddress undoes WriteAddress.
func RemoveAddress(dir string) error { return os.Remove(addressFile(dir)) }

// Running reads the address of the server that holds the lock of a folder; the
// address is empty while the server starts. ok is false if no process holds the lock: an
// address in the folder is then that of a server that was killed.
func Running(dir string) (a Address, ok bool) {
	f, err := os.Open(lockFile(dir))
	if err != nil {
		return a, false
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return a, false
	}
	b, err := os.ReadFile(addressFile(dir))
	if err != nil || json.Unmarshal(b, &a) != nil {
		return Address{}, true
	}
	return a, true
}

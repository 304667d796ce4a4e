package creds_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/creds"
)

const uid, gid = 48_731, 48_732 // no account has these ids

// TestMain drops the supplementary groups, as Do requires.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 {
		if err := syscall.Setgroups(nil); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
}

func TestRights(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Mkdir(open, 0o755), os.Chmod(open, 0o777),
		os.WriteFile(filepath.Join(dir, "shut"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	look := func() error {
		_, err := os.ReadFile(filepath.Join(dir, "shut"))
		return err
	}
	err := creds.Do(uid, gid, func() error {
		if err := look(); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a file of root's: %v", err)
		}
		if err := os.Chown(open, uid, gid); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("root's abilities: %v", err)
		}
		others := make(chan error)
		go func() { others <- look() }()
		if err := <-others; err != nil {
			t.Errorf("another goroutine: %v", err)
		}
		return os.WriteFile(filepath.Join(open, "f"), nil, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(open, "f"), &st); err != nil || st.Uid != uid || st.Gid != gid {
		t.Errorf("the file belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if err := look(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// However f ends, no thread keeps the other user's rights.
func TestReturn(t *testing.T) {
	needRoot(t)
	oops := errors.New("oops")
	if err := creds.Do(uid, gid, func() error { return oops }); err != oops {
		t.Errorf("%v", err)
	}
	func() {
		defer func() { recover() }()
		creds.Do(uid, gid, func() error { panic("oops") })
	}()
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(threads) == 0 {
		t.Fatalf("%q, %v", threads, err)
	}
	for _, thread := range threads {
		var st unix.Stat_t // the owner of a thread's folder in /proc is the thread's effective user
		if err := unix.Stat(thread, &st); err == nil && (st.Uid != 0 || st.Gid != 0) {
			t.Errorf("%s is %d:%d", thread, st.Uid, st.Gid)
		}
	}
}

// A process with the other user's id cannot signal this process meanwhile.
func TestTheUserCannotReachUs(t *testing.T) {
	needRoot(t)
	if err := creds.Do(uid, gid, func() error {
		kill := exec.Command("kill", "-0", strconv.Itoa(os.Getpid()))
		kill.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		failed := make(chan error)
		go func() { failed <- kill.Run() }() // with the rights to become the user
		if _, ok := errors.AsType[*exec.ExitError](<-failed); !ok {
			return errors.New("it was signalled")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestWhoMayNot(t *testing.T) {
	if os.Geteuid() != 0 {
		ran := false
		if err := creds.Do(uid, gid, func() error { ran = true; return nil }); !errors.Is(err, unix.EPERM) || ran {
			t.Errorf("%v, ran: %v", err, ran)
		}
		return
	}
	ran := false
	err := creds.Do(uid, gid, func() error {
		return creds.Do(uid+1, gid, func() error { ran = true; return nil })
	})
	if !errors.Is(err, unix.EPERM) || ran {
		t.Errorf("%v, ran: %v", err, ran)
	}
}

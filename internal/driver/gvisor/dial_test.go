package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDialReachesASocketFarDown(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	listen(t, path)
	conn, err := dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// If root inside replaces the socket by another file, the daemon does not connect to that file or its target.
func TestDialFollowsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	listen(t, at("hosts"))
	err := errors.Join(
		os.Symlink("hosts", at("link")),
		os.WriteFile(at("file"), nil, 0o600),
		os.Mkdir(at("folder"), 0o700),
		unix.Mkfifo(at("fifo"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "file", "folder", "fifo", "nothing"} {
		if conn, err := dial(t.Context(), at(name)); err == nil {
			conn.Close()
			t.Errorf("connected to a %s", name)
		}
	}
}

func TestDialWaitsForRoom(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sock")
	ln := listen(t, path)
	fill(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := dial(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a full queue: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() {
		if conn, err := ln.Accept(); err == nil {
			conn.Close()
		}
	})
	conn, err := dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// fill connects until the queue is full.
func fill(t *testing.T, path string) {
	t.Helper()
	for {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// listen creates a socket with a queue of one.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	wd, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer wd.Close()
	name := fmt.Sprintf("/proc/self/fd/%d/%s", wd.Fd(), filepath.Base(path))
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	ln, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

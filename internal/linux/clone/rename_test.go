package clone

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSetHostname(t *testing.T) {
	t.Parallel()
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	pid, fd, err := Start(Command{
		Path: "/bin/sh", Argv: []string{"sh", "-c", "read go; uname -n"}, Files: []int{int(stdin.Fd()), int(stdout.Fd()), 2},
		Namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWUTS,
	})
	stdin.Close()
	stdout.Close()
	if err != nil {
		t.Skipf("no user namespaces here: %v", err)
	}
	defer unix.Close(fd)
	defer reap(t, pid)
	ours, _ := os.Hostname()
	var all sync.WaitGroup
	for range 20 { // a child that harms its parent's memory shows
		all.Go(func() {
			if err := SetHostname(fd, "other"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := SetHostname(fd, strings.Repeat("x", 65)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a name too long: %v", err)
	}
	in.Close()
	if b, err := io.ReadAll(out); err != nil || string(b) != "other\n" {
		t.Errorf("%q, %v", b, err)
	}
	if now, _ := os.Hostname(); now != ours {
		t.Errorf("we are %q now, and were %q", now, ours)
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); d != 1 {
		t.Errorf("others may not look into us any more: %d, %v", d, err)
	}
	if err := SetHostname(-1, "x"); !errors.Is(err, syscall.EBADF) {
		t.Errorf("nobody's: %v", err)
	}
}

package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A mount that do makes is invisible elsewhere, and no thread stays in its namespace.
func TestApart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has mounts of its own at once")
	}
	dir, before := t.TempDir(), mountsOfThreads(t)
	file := filepath.Join(dir, "file")
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			err := Apart(func() error {
				tree, err := New("tmpfs", NoSUID|NoDev)
				if err != nil {
					return err
				}
				defer tree.Close()
				return errors.Join(tree.AttachTo(dir), unix.Chdir(dir), os.WriteFile("file", nil, 0o600), unix.Access(file, unix.F_OK))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was written apart: %v", err)
	}
	end := time.Now().Add(10 * time.Second)
	for now := mountsOfThreads(t); now != before; now = mountsOfThreads(t) {
		if time.Now().After(end) {
			t.Fatalf("threads have the mounts %s, and had %s", now, before)
		}
		time.Sleep(time.Millisecond)
	}
}

// mountsOfThreads returns the mount namespaces of this process's threads.
func mountsOfThreads(t *testing.T) string {
	tasks, err := filepath.Glob("/proc/self/task/*/ns/mnt")
	if err != nil || len(tasks) == 0 {
		t.Fatal(err)
	}
	var seen []string
	for _, task := range tasks {
		if ns, err := os.Readlink(task); err == nil && !strings.Contains(strings.Join(seen, " "), ns) {
			seen = append(seen, ns)
		}
	}
	return strings.Join(seen, " ")
}

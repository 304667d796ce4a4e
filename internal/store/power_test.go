package store_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/store"
)

// disk is a separate file system, whose power can be cut.
type disk struct{ image, dir string }

func newDisk(t *testing.T) disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user can make no disk")
	}
	d := disk{filepath.Join(t.TempDir(), "image"), t.TempDir()}
	for _, argv := range [][]string{{"truncate", "--size=64M", d.image}, {"mkfs.ext4", "-q", d.image}, {"mount", "-o", "loop", d.image, d.dir}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no disk of its own, by %q: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() { unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

// cutPower cuts the power, and restores it once the store has noticed. Writes that were not synced are lost.
func (d disk) cutPower(t *testing.T, power *store.Store) {
	t.Helper()
	const shutdown, noFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	f, err := os.Open(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	err = unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noFlush)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	power.Close()
	if err := unix.Unmount(d.dir, 0); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// After a power failure of the machine, a record that was written by Keep is still there, with all records that were
// written before it.
func TestKeptWithoutPower(t *testing.T) {
	t.Parallel()
	d, now := newDisk(t), time.Now()
	path := filepath.Join(d.dir, "db")
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{
		s.Put(t.Context(), record("before", now)), s.Keep(t.Context(), record("kept", now)), s.Put(t.Context(), record("after", now)),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	d.cutPower(t, s)
	if s, err = store.Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := map[string]bool{}
	all, err := s.All(t.Context())
	for _, r := range all {
		found[r.Key] = true
	}
	if err != nil || !found["before"] || !found["kept"] {
		t.Errorf("there are %v, %v", found, err)
	}
	if found["after"] {
		t.Log("what was only put is there, too")
	}
}

// Package disk gives tests as little disk space as other servers have.
package disk

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Shrink limits the space of an empty folder, in the notation of tmpfs(5), until it is unmounted or the test ends. Only
// root can do that.
func Shrink(t testing.TB, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user can make no small disk")
	}
	if err := unix.Mount("small", dir, "tmpfs", 0, "size="+size+",mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

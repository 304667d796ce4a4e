package mount

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Conceal marks a path as deleted in top, the upper of two layers of an overlay: the overlay then hides the path in
// the folder lower, now and if it is created later. Both names are relative to dir. If lower lacks a folder on the
// way, the first missing one is marked instead.
func Conceal(dir int, lower, top, path string) error {
	parts := strings.Split(path, "/")
	for n := range parts {
		part := filepath.Join(parts[:n+1]...)
		var st unix.Stat_t
		err := unix.Fstatat(dir, filepath.Join(lower, part), &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && n < len(parts)-1 {
			return nil // a link or a file: a path below it does not exist here
		}
		if err == nil && n < len(parts)-1 {
			if err := unix.Mkdirat(dir, filepath.Join(top, part), st.Mode&0o7777); err != nil && err != unix.EEXIST {
				return err
			}
			continue
		}
		if err != nil && err != unix.ENOENT {
			return err
		}
		if err := unix.Mknodat(dir, filepath.Join(top, part), unix.S_IFCHR, 0); err != nil && err != unix.EEXIST {
			return err
		}
		return nil
	}
	return nil
}

package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConceal(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make marks for deleted files here")
	}
	dir := t.TempDir()
	for _, folder := range []string{"low/there/deep", "low/whole/below", "top"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Symlink("there", filepath.Join(dir, "low/link")),
		os.WriteFile(filepath.Join(dir, "low/there/file"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	paths := []string{
		"one", "there/file", "there/deep/later", "there/deep/other", "missing/a", "missing/b/c",
		"link/file", "there/file/below", "whole/below/file", "whole", "one",
	}
	if err := Conceal(fd, "low", "top", paths); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"one", "there/file", "there/deep/later", "there/deep/other", "missing", "whole"} {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, "top/"+path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
			t.Errorf("%s has no mark: %v, mode %o", path, err, st.Mode)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "top/link")); !os.IsNotExist(err) {
		t.Errorf("a link of the lower folder is in the upper one: %v", err)
	}
}

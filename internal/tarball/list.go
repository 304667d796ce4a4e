package tarball

import (
	"bufio"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// List writes the names of all files below root, each with a zero byte at its end, and does not enter other mounts. A
// folder with unknown content, because it is a mount or cannot be read, is listed again with a slash at its end.
func List(out io.Writer, root string) error {
	w := bufio.NewWriterSize(out, bufferSize)
	var top unix.Stat_t
	if err := unix.Lstat(root, &top); err != nil {
		return err
	}
	name := func(path string) string { return strings.TrimPrefix(path[len(root):], "/") }
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if path == root {
			return err
		}
		if err != nil {
			w.WriteString(name(path) + "/\x00")
			return nil
		}
		if _, err := w.WriteString(name(path) + "\x00"); err != nil || !d.IsDir() {
			return err
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Dev != top.Dev {
			w.WriteString(name(path) + "/\x00")
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.Flush()
}

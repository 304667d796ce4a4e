package image

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Provided are the paths that Hutch provides in each sandbox, whatever the image has there.
var Provided = []string{"dev", "proc", "sys", ".hutch", "etc/hosts", "etc/hostname", "etc/resolv.conf"}

// Within reports whether a name is one of some paths, or below one.
func Within(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// Names collects the list for [Removed], which comes from inside of a sandbox. It refuses a list that is longer than
// that of any sandbox whose image has at most Entries entries.
type Names struct {
	Entries int
	TooMany error

	list  bytes.Buffer
	count int
}

// Write implements io.Writer.
func (n *Names) Write(p []byte) (int, error) {
	n.count += bytes.Count(p, []byte{0})
	// The list has the names of the image and of the layer, and folders twice.
	if n.count > 3*n.Entries || n.list.Len()+len(p) > 128*n.Entries {
		return 0, n.TooMany
	}
	return n.list.Write(p)
}

// String returns the list.
func (n *Names) String() string { return n.list.String() }

// Removed calls gone with each name of an image that a sandbox no longer has. If a folder was removed, gone is not
// called for the names in it. list has the names in the sandbox, each with a zero byte at its end; a name that ends
// with a slash is a folder with unknown content. replaced reports whether the sandbox has written something else than
// a folder at a name. hidden are paths whose files are not compared, in addition to [Provided].
func Removed(before fs.FS, list string, hidden []string, replaced func(name string) bool, gone func(name string) error) error {
	there, unknown := map[string]bool{}, map[string]bool{}
	for name := range strings.SplitSeq(list, "\x00") {
		clean := strings.TrimPrefix(path.Clean("/"+name), "/")
		there[clean] = true
		if strings.HasSuffix(name, "/") {
			unknown[clean] = true
		}
	}
	return fs.WalkDir(before, ".", func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || at == ".":
			return err
		case Within(at, Provided) || Within(at, hidden):
		case !there[at]:
			if err := gone(at); err != nil {
				return err
			}
		case !unknown[at] && !replaced(at):
			return nil // then names below it can be missing from the list without being removed
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

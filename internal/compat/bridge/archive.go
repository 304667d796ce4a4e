package bridge

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"hutch"
	"hutch/internal/pipe"
)

// filtered passes the archive that pack writes to w, without entries that the patterns exclude. A folder is excluded
// with everything in it. Without patterns the bytes are passed on unchanged.
func filtered(w io.Writer, excludes []exclude, pack func(io.Writer) error) error {
	if len(excludes) == 0 {
		return pack(w)
	}
	var copied error
	err := pipe.Through(pack, func(r io.Reader) error {
		copied = copyArchive(w, r, excludes)
		return copied
	})
	if errors.Is(err, context.Canceled) {
		return copied // the client's error says more
	}
	return err
}

// copyArchive copies the entries that no pattern excludes, one after the other.
func copyArchive(w io.Writer, r io.Reader, excludes []exclude) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		entry, err := in.Next()
		if err == io.EOF {
			if _, err := io.Copy(io.Discard, r); err != nil { // data after the last entry
				return err
			}
			return out.Close()
		}
		if err != nil {
			return unreadable(err)
		}
		if excluded(entry.Name, excludes) {
			continue
		}
		if err := out.WriteHeader(entry); err != nil {
			return unreadable(err)
		}
		if _, err := io.Copy(out, in); err != nil {
			return unreadable(err)
		}
	}
}

// unreadable returns the error for an archive that the sandbox made and the server cannot read.
func unreadable(err error) error {
	if _, known := errors.AsType[*hutch.Error](err); known {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the archive of the workspace cannot be filtered: persist it without excludes").Because(err)
}

// exclude is a pattern of paths, and the number of slashes in the paths that it can match. So a pattern is not tried on
// each of the thousand folders that a path can have above it.
type exclude struct {
	pattern     string
	least, most int // slashes
}

// newExclude reads a pattern, and counts the slashes that a matching name can have. Each slash of the pattern matches
// one slash of the name. A class, such as [!-~], makes the number uncertain: it can match a slash, and a slash inside it
// need not match one.
func newExclude(pattern string) (exclude, error) {
	_, err := path.Match(pattern, "")
	slashes, classes := strings.Count(pattern, "/"), strings.Count(pattern, "[")
	e := exclude{pattern, slashes, slashes + classes}
	if classes > 0 {
		e.least = 0
	}
	return e, err
}

// excluded reports whether a pattern matches a name or a folder above it.
func excluded(name string, excludes []exclude) bool {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return false
	}
	var folders []string // by their number of slashes, and the name itself
	for i := range len(name) {
		if name[i] == '/' {
			folders = append(folders, name[:i])
		}
	}
	folders = append(folders, name)
	for _, e := range excludes {
		for _, p := range folders[min(e.least, len(folders)):min(e.most+1, len(folders))] {
			if ok, _ := path.Match(e.pattern, p); ok {
				return true
			}
		}
	}
	return false
}

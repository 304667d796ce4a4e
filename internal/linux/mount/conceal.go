package mount

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Conceal marks paths as deleted in top, the upper layer of an overlay: the overlay then hides them in the folder
// lower, even if they are created there later. lower and top are relative to dir. If lower lacks a folder of a path,
// Conceal marks the first missing folder instead.
func Conceal(dir int, lower, top string, paths []string) error {
	m := marks{dir: dir, lower: lower, top: top, seen: map[string]bool{".": true}}
	for _, p := range slices.Sorted(slices.Values(paths)) { // a folder comes before its content
		inside, err := m.open(path.Dir(p))
		if err == nil && inside {
			err = m.mark(p)
		}
		if err != nil {
			return fmt.Errorf("hide %s: %w", p, err)
		}
	}
	return nil
}

type marks struct {
	dir        int
	lower, top string
	seen       map[string]bool // whether marks can be made in a folder
	first      string          // the first mark; the others are hard links to it, as overlayfs itself makes them
}

// open makes a folder of lower in top, with its parents. It returns false if the folder is hidden or missing: then
// paths in the folder need no mark.
func (m *marks) open(folder string) (bool, error) {
	if inside, ok := m.seen[folder]; ok {
		return inside, nil
	}
	inside, err := m.open(path.Dir(folder))
	if err == nil && inside {
		inside, err = m.copyFolder(folder)
	}
	m.seen[folder] = inside
	return inside, err
}

func (m *marks) copyFolder(folder string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(m.dir, m.lower+"/"+folder, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, m.mark(folder)
	}
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, err // nothing can exist below a link or a file
	}
	err = unix.Mkdirat(m.dir, m.top+"/"+folder, st.Mode&0o7777)
	return err == nil, err
}

func (m *marks) mark(p string) error {
	m.seen[p] = false
	name := m.top + "/" + p
	var err error
	if m.first == "" {
		err = unix.Mknodat(m.dir, name, unix.S_IFCHR, 0)
	} else {
		err = unix.Linkat(m.dir, m.first, m.dir, name, 0)
	}
	if err == nil && m.first == "" {
		m.first = name
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

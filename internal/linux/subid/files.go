package subid

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Range is a range of ids of this host.
type Range struct{ First, Size int }

func (r Range) has(id int) bool { return id >= r.First && id < r.First+r.Size }

func (r Range) hasAny(ids []int) bool { return slices.ContainsFunc(ids, r.has) }

func (r Range) overlaps(other Range) bool {
	return r.First < other.First+other.Size && other.First < r.First+r.Size
}

const (
	lastID     = 1<<32 - 2 // the next number means "no id"
	mostRanges = 100       // a namespace can have 340
	mostText   = 16 << 20
)

// namesOf returns the names that /etc/passwd has for a user id. It does not use the environment, because anyone can set
// that.
func namesOf(passwd string, uid int) (names []string, err error) {
	err = eachLine(passwd, func(f []string) {
		if id, ok := parseID(field(f, 2)); ok && id == uid && f[0] != "" {
			names = append(names, f[0])
		}
	})
	return names, err
}

// accountIDs returns the ids of all accounts in /etc/passwd or /etc/group.
func accountIDs(path string) (ids []int, err error) {
	err = eachLine(path, func(f []string) {
		if id, ok := parseID(field(f, 2)); ok {
			ids = append(ids, id)
		}
	})
	return ids, err
}

// readRanges returns the ranges of a user, by the user's names or number, and the first id after all ranges of the
// file. It ignores a line that is not exactly as in subuid(5), or that overlaps an earlier line of the user.
func readRanges(path string, names []string, uid int) (ranges []Range, end int, err error) {
	err = eachLine(path, func(f []string) {
		first, ok := parseID(field(f, 1))
		size, okSize := parseID(field(f, 2))
		if !ok || !okSize || len(f) != 3 || first == 0 || size == 0 || size > lastID-first {
			return
		}
		r := Range{First: first, Size: size}
		end = max(end, first+size)
		number, isNumber := parseID(f[0])
		mine := slices.Contains(names, f[0]) || isNumber && number == uid
		if mine && len(ranges) < mostRanges && !slices.ContainsFunc(ranges, r.overlaps) {
			ranges = append(ranges, r)
		}
	})
	return ranges, end, err
}

func field(f []string, n int) string {
	if n >= len(f) {
		return ""
	}
	return f[n]
}

// parseID accepts only decimal digits: no sign, no space, and no leading zero, because newuidmap reads a number with a
// leading zero as octal.
func parseID(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n), err == nil && n <= lastID && strconv.FormatUint(n, 10) == s
}

// eachLine calls f with the fields of each line. A missing file counts as empty.
func eachLine(path string, f func([]string)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	s := bufio.NewScanner(io.LimitReader(file, mostText))
	for s.Scan() {
		f(strings.Split(s.Text(), ":"))
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Package account finds users in the files /etc/passwd and /etc/group of an image or a sandbox. It limits how much of
// these files it reads, and does not trust their content.
package account

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"hutch"
)

// User is a user of an image, with the ids from its files.
type User struct {
	Name   string   `json:"name,omitempty"` // empty for a number that /etc/passwd does not have
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"` // supplementary
	Home   string   `json:"home"`             // "/" when unknown
	Shell  string   `json:"shell,omitempty"`
}

// most is how many bytes of each file are read at most; mostLines is how many lines.
const most, mostLines = 4 << 20, 1 << 16

// Lookup finds a user. The text is USER, UID, USER:GROUP or a mix; empty is root. A number need not be in the files.
// "+7" is the user or group with the number 7, even if another one is called 7.
func Lookup(passwd, group io.Reader, text string) (User, error) {
	return lookup(lines(passwd), lines(group), text)
}

func lookup(passwd, group [][]string, text string) (User, error) {
	name, groupName, withGroup := strings.Cut(text, ":")
	if name == "" {
		name = "0"
	}
	u, err := findUser(passwd, name)
	if err != nil {
		return User{}, err
	}
	if withGroup && groupName != "" {
		u.GID, err = findGroup(group, groupName)
		return u, err
	}
	u.Groups = groupsOf(group, u)
	return u, nil
}

// findUser finds a name before a number, as a user can be called 7.
func findUser(passwd [][]string, name string) (User, error) {
	digits, onlyNumber := strings.CutPrefix(name, "+")
	number, isNumber := parseID(digits)
	for _, byName := range []bool{true, false} {
		for _, l := range passwd {
			if len(l) < 7 || byName && (l[0] != name || onlyNumber) {
				continue
			}
			uid, okUID := parseID(l[2])
			gid, okGID := parseID(l[3])
			if okUID && okGID && (byName || isNumber && uid == number) {
				return User{Name: l[0], UID: uid, GID: gid, Home: homeOr(l[5]), Shell: l[6]}, nil
			}
		}
	}
	if isNumber {
		return User{UID: number, Home: "/"}, nil
	}
	return User{}, hutch.Errorf(hutch.Invalid, "there is no user %.100q in /etc/passwd of the sandbox's image: name another one, or give a number such as 1000", name).Naming(hutch.AboutField, "user")
}

func homeOr(home string) string {
	if !strings.HasPrefix(home, "/") {
		return "/"
	}
	return home
}

func findGroup(group [][]string, name string) (uint32, error) {
	digits, onlyNumber := strings.CutPrefix(name, "+")
	for _, l := range group {
		if len(l) >= 3 && l[0] == name && !onlyNumber {
			if gid, ok := parseID(l[2]); ok {
				return gid, nil
			}
		}
	}
	if gid, ok := parseID(digits); ok {
		return gid, nil
	}
	return 0, hutch.Errorf(hutch.Invalid, "there is no group %.100q in /etc/group of the sandbox's image: name another one, or give a number such as 1000", name).Naming(hutch.AboutField, "user")
}

// mostGroups is how many supplementary groups a user can have.
const mostGroups = 1024

func groupsOf(group [][]string, u User) []uint32 {
	var groups []uint32
	for _, l := range group {
		if u.Name == "" || len(l) < 4 || len(groups) == mostGroups {
			continue
		}
		for member := range strings.SplitSeq(l[3], ",") {
			if gid, ok := parseID(l[2]); ok && member == u.Name && gid != u.GID {
				groups = append(groups, gid)
				break
			}
		}
	}
	return groups
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n < 1<<32-1
}

// mostFields is the most fields that a line is split into: one more than a line of /etc/passwd has. Each field needs 16
// times the memory of the colon before it.
const mostFields = 8

// lines returns the fields of each line of a file.
func lines(f io.Reader) (all [][]string) {
	for s := bufio.NewScanner(io.LimitReader(f, most)); s.Scan() && len(all) < mostLines; {
		if line := strings.SplitN(s.Text(), ":", mostFields); len(line) > 2 {
			all = append(all, line)
		}
	}
	return all
}

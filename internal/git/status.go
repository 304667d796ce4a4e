package git

import (
	"fmt"
	"strconv"
	"strings"

	"hutch"
)

// MaxFiles is how many changed files a status lists at most.
const MaxFiles = 100_000

// ParseStatus parses the output of [Status]: records that end in a zero byte, first headers, then one for each file.
// It refuses unknown records.
func ParseStatus(out []byte) (hutch.GitStatus, error) {
	s := hutch.GitStatus{Files: []hutch.GitChange{}}
	rest := string(out)
	for rest != "" {
		record, tail, ok := strings.Cut(rest, "\x00")
		if !ok {
			return s, fmt.Errorf("status ends within %.80q", record)
		}
		rest = tail
		var from string
		if strings.HasPrefix(record, "2 ") { // renamed: the next record is the old name
			if from, rest, ok = strings.Cut(rest, "\x00"); !ok {
				return s, fmt.Errorf("status ends behind %.80q", record)
			}
		}
		if err := add(&s, record, from); err != nil {
			return s, err
		}
	}
	s.Clean = len(s.Files) == 0
	return s, nil
}

// fields is how many words precede a name, for each kind of record.
var fields = map[string]int{"1": 8, "2": 9, "u": 10, "?": 1}

func add(s *hutch.GitStatus, record, from string) error {
	kind, _, _ := strings.Cut(record, " ")
	if kind == "#" {
		return header(s, record)
	}
	n := fields[kind]
	words := strings.SplitN(record, " ", n+1)
	if n == 0 || len(words) != n+1 || words[n] == "" {
		return fmt.Errorf("status record %.80q", record)
	}
	if len(s.Files) == MaxFiles {
		return hutch.Errorf(hutch.Exhausted, "more than %d files have changed: ignore what need not be told in .gitignore, or run git status", MaxFiles)
	}
	c := hutch.GitChange{Path: words[n], From: from, Index: "?", Tree: "?"}
	if kind != "?" {
		if len(words[1]) != 2 || strings.Trim(words[1], ".MTADRCU") != "" {
			return fmt.Errorf("status letters %.20q", words[1])
		}
		c.Index, c.Tree = words[1][:1], words[1][1:]
	}
	s.Files = append(s.Files, c)
	return nil
}

func header(s *hutch.GitStatus, record string) error {
	name, value, _ := strings.Cut(strings.TrimPrefix(record, "# "), " ")
	switch name {
	case "branch.oid":
		if s.Commit = value; value == "(initial)" {
			s.Commit = ""
		}
		return checkCommit(s.Commit)
	case "branch.head":
		if s.Branch = value; value == "(detached)" {
			s.Branch = ""
		}
	case "branch.upstream":
		s.Upstream = value
	case "branch.ab":
		return distance(s, value)
	}
	return nil // from a newer git
}

// distance reads "+3 -0".
func distance(s *hutch.GitStatus, value string) error {
	ahead, behind, _ := strings.Cut(value, " ")
	for word, n := range map[string]*int{ahead: &s.Ahead, behind: &s.Behind} {
		v, err := strconv.ParseUint(strings.TrimLeft(word, "+-"), 10, 31)
		if err != nil {
			return fmt.Errorf("distance %.40q", value)
		}
		*n = int(v)
	}
	return nil
}

func checkCommit(s string) error {
	if len(s) > 64 || strings.Trim(s, "0123456789abcdef") != "" {
		return fmt.Errorf("commit %.80q", s)
	}
	return nil
}

// Line returns the only line of an output: the name of a folder, which can contain anything, or of a branch.
func Line(out []byte) (string, error) {
	line, ok := strings.CutSuffix(string(out), "\n")
	if !ok || line == "" || len(line) > hutch.MaxPath || strings.Contains(line, "\x00") {
		return "", fmt.Errorf("line %.80q", out)
	}
	return line, nil
}

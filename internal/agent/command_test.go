package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hutch/internal/wire"
)

func TestPlainWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"ls":                              "ls",
		"ls -la /usr":                     "ls|-la|/usr",
		" \tpython3  -m  pytest\t-q\n":    "python3|-m|pytest|-q",
		"cmake --build=x -DA=1":           "cmake|--build=x|-DA=1",
		"git commit --author a@b.c:1,2":   "git|commit|--author|a@b.c:1,2",
		"":                                "",
		"A=1 ls":                          "",
		"ls *":                            "",
		"ls ~":                            "",
		"ls $HOME":                        "",
		"ls | wc":                         "",
		"ls; ls":                          "",
		"ls\nls":                          "",
		"ls &":                            "",
		"ls > x":                          "",
		"ls {a,b}":                        "",
		"ls 'a b'":                        "ls|a b",
		"'/bin/ls' 'it'\\''s' '' '$x\n*'": "/bin/ls|it's||$x\n*",
		"ls a'b'c":                        "ls|abc",
		"ls 'a":                           "",
		"ls 'a' $x":                       "",
		"'echo' hello":                    "",
		"'[' a ']'":                       "",
		"'A=1' ls":                        "",
		`ls "a"`:                          "",
		`ls \a`:                           "",
		"! ls":                            "",
		"ls # x":                          "",
		"ls [a]":                          "",
		"ls a?":                           "",
		"(ls)":                            "",
		"ls `x`":                          "",
		"time ls":                         "",
		"echo hello":                      "",
		"cd /usr":                         "",
		"exec ls":                         "",
		"ls \u00e9":                       "",
	} {
		if got := strings.Join(plainWords(line, nil), "|"); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	for _, env := range []string{"BASH_ENV=/x", "BASH_FUNC_ls%%=() { :; }", "SHELLOPTS=noexec", "POSIXLY_CORRECT=1"} {
		if plainWords("ls", []string{env}) != nil {
			t.Errorf("plain with %s", env)
		}
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	rest := " 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123"
	for stat, want := range map[string]process{
		"5 (sh) S" + rest:            {pid: 5, parent: 7, session: 9},
		"5 (a) Z 1 1 1 (x) S" + rest: {pid: 5, parent: 7, session: 9},
		"5 () ) Z" + rest:            {pid: 5, parent: 7, session: 9, dead: true},
		"5 (x) Z" + strings.Replace(rest, "20 0 1", "20 0 2", 1): {pid: 5, parent: 7, session: 9},
	} {
		if p, ok := parseStat(5, []byte(stat)); !ok || p != want {
			t.Errorf("%s: %+v %v", stat, p, ok)
		}
	}
	for _, stat := range []string{"", ")", "5 (x", "5 (x) S", "5 (x) S a b c d e f g h i j k l m n o p q r s"} {
		if p, ok := parseStat(5, []byte(stat)); ok {
			t.Errorf("%s: %+v", stat, p)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	a := &agent{}
	a.env = []string{"A=1", "AB=2", "A=3"}
	s := wire.Start{ID: "x", Env: []string{"A=4", "HUTCH_PROCESS=y", "HOME=/h"}}
	want := []string{"HUTCH_PROCESS=x", "PWD=/d", "HOME=/h", "A=4", "AB=2"}
	if got := a.environ(s, "/home/user", "/d"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The largest allowed environment is merged at once: comparing each variable with all before it would take an hour.
func TestEnvironOfMany(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 200_000 {
		many = append(many, fmt.Sprintf("V%d=", i))
	}
	a := &agent{env: many}
	if got := a.environ(wire.Start{ID: "x-1", Env: many}, "", "/d"); len(got) != len(many)+2 {
		t.Errorf("%d variables became %d", len(many), len(got))
	}
}

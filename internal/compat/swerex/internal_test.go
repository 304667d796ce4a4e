package swerex

import (
	"context"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
	"hutch/internal/fakeservice"
)

func as(owner string) context.Context {
	return caller.WithOwner(context.Background(), caller.Owner{ID: owner})
}

// TestOwnersShareNoSession: if two owners have sandboxes with the same id, and processes with the same id in them,
// these are two sessions. An owner that begins many sessions makes the server forget only its own sessions.
func TestOwnersShareNoSession(t *testing.T) {
	t.Parallel()
	var all shells
	svc := &fakeservice.Service{}
	ada, err := all.take(as("ada"), svc, "box", "p")
	if err != nil {
		t.Fatal(err)
	}
	ada.cursor = 17
	eve, err := all.take(as("eve"), svc, "box", "p") // it does not wait for ada's action
	if err != nil || eve == ada || eve.cursor != unknown {
		t.Fatalf("%+v, %v", eve, err)
	}
	all.release(ada)
	for i := range 2 * maxShells {
		sh, err := all.take(as("eve"), svc, fmt.Sprint("box-", i), "p")
		if err != nil {
			t.Fatal(err)
		}
		all.release(sh)
	}
	again, err := all.take(as("ada"), svc, "box", "p")
	if err != nil || again.cursor != 17 {
		t.Errorf("ada's session is at %d: %v", again.cursor, err)
	}
	all.release(again)
	if n := len(all.list["eve"]); n > maxShells {
		t.Errorf("%d sessions of eve are remembered", n)
	}
	if all.list["eve"][address{"box", "p"}] != eve {
		t.Error("a session that is in use was forgotten: two actions could use it at a time")
	}
	all.release(eve)
	all.forget(as("ada"), "box", "p")
	if _, left := all.list["ada"]; left {
		t.Error("an owner without sessions is remembered")
	}
}

// TestAllInUse: when all sessions of an owner are in use, another is refused.
func TestAllInUse(t *testing.T) {
	t.Parallel()
	var all shells
	for i := range maxShells {
		if _, err := all.take(as("ada"), nil, fmt.Sprint("box-", i), "p"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := all.take(as("ada"), nil, "another", "p"); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("%v", err)
	}
}

// TestTurn: an action waits until the action before it ends, or until its own client disconnects.
func TestTurn(t *testing.T) {
	t.Parallel()
	var all shells
	first, err := all.take(as("ada"), nil, "box", "p")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(as("ada"), 20*time.Millisecond)
	defer cancel()
	if _, err := all.take(ctx, nil, "box", "p"); err == nil {
		t.Error("two actions use one session")
	}
	all.release(first)
	if _, err := all.take(as("ada"), nil, "box", "p"); err != nil {
		t.Error(err)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"a\r\nb":                               "a\nb",
		"SHELLPS1PREFIXa":                      "a",
		"\x1b[1;31mred\x1b[0m":                 "red",
		"a\x1b]7770;abcdefghijkl;0\x07b":       "ab",
		"a\xff":                                `a\xff`,
		"\x1b]7770;abcdefghijkl;0\x07SHELLPS1": "SHELLPS1",
	} {
		if got := clean(out); got != want {
			t.Errorf("%q is %q, not %q", out, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	patterns := []*regexp.Regexp{regexp.MustCompile("late"), regexp.MustCompile("ea(.)"), markOf("abc")}
	m, ok := find([]byte("before early late"), 0, patterns)
	if !ok || m.pattern != 1 || m.before != "before " || m.text != "ear" || m.group != "r" {
		t.Errorf("%+v, %v", m, ok)
	}
	m, ok = find([]byte("x\x1b]7770;abc;42\x07y late"), 0, patterns)
	if !ok || m.pattern != 2 || m.before != "x" || m.group != "42" {
		t.Errorf("%+v, %v", m, ok)
	}
	if m, ok := find([]byte("nothing"), 3, patterns); ok {
		t.Errorf("%+v", m)
	}
}

// FuzzCommand: whatever the body, the form of the request to the service is valid.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{`{"command":["ls","-l"],"timeout":1}`, `{"command":"a'b","shell":true,"cwd":"/tmp"}`, `{"command":null}`, `{"command":["\u0000"],"merge_output_streams":true}`, `{"command":[null],"timeout":-1e300}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var c command
		if compat.Decode(body, &c) != nil {
			return
		}
		req, err := c.request(3600)
		if err != nil {
			return
		}
		if err := req.Check(); err != nil || !(req.Timeout > 0) || req.SessionID != "" || req.Language != "" {
			t.Errorf("%s: %+v, %v", body, req, err)
		}
	})
}

// FuzzAction: if an action is accepted, all its patterns are compiled, and they are small together.
func FuzzAction(f *testing.F) {
	for _, seed := range []string{`{"expect":[">>> ","\\(gdb\\)"]}`, `{"expect":["((a{9}){99}){9}","x*"]}`, `{"expect":["(?i)[a-z]{2,}|\\pL"],"n_retry":3}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var a action
		if compat.Decode(body, &a) != nil {
			return
		}
		list, err := a.patterns()
		if err != nil {
			return
		}
		if len(list) != len(a.Expect) {
			t.Fatalf("%d patterns of %d", len(list), len(a.Expect))
		}
		total := 0
		for _, text := range a.Expect {
			tree, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
			if err != nil {
				t.Fatal(err)
			}
			program, err := syntax.Compile(tree.Simplify())
			if err != nil {
				t.Fatal(err)
			}
			total += len(program.Inst)
		}
		if total > 8*maxSteps {
			t.Errorf("%q have %d instructions", a.Expect, total)
		}
	})
}

// FuzzText: every output can be an answer in JSON.
func FuzzText(f *testing.F) {
	f.Add([]byte("a\xff\x00\r\n\x1b[0m"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, s := range []string{clean(string(out)), text(out), latin1(out)} {
			if !utf8.ValidString(s) {
				t.Errorf("%q is %q", out, s)
			}
		}
		for _, mode := range []string{"strict", "replace", "ignore", "backslashreplace"} {
			s, err := decodeText(out, "ascii", mode)
			if err == nil && mode != "replace" && strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
				t.Errorf("%q in ascii is %q", out, s)
			}
		}
	})
}

// FuzzSearch: however output is cut into pieces, what is kept is bounded, and the cursor stays within the output.
func FuzzSearch(f *testing.F) {
	f.Add([]byte("some output\x1b]7770;abc;0\x07prompt"), 3)
	f.Fuzz(func(t *testing.T, out []byte, size int) {
		size = min(max(size, 1), 1<<20)
		look := search{ctx: context.Background(), patterns: []*regexp.Regexp{markOf("abc")}}
		for at := 0; at < len(out) && !look.done; at += size {
			piece := out[at:min(at+size, len(out))]
			err := look.add(hutch.Output{Data: piece, Cursor: int64(at + len(piece))})
			if look.end < 0 || look.end > int64(len(out)) || len(look.kept) > maxKept+size || (err != nil) != look.done {
				t.Fatalf("%d of %d, %d kept: %v", look.end, len(out), len(look.kept), err)
			}
		}
		if whole := markOf("abc").FindIndex(out); whole != nil && (!look.done || look.end != int64(whole[1])) {
			t.Errorf("the end at %d was found at %d: %v", whole[1], look.end, look.done)
		}
	})
}

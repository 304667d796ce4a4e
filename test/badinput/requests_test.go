// Package badinput sends every runtime requests that no program should make, and runs programs that take all they can
// get. Each must end with a clear error or a correct result, and leave the daemon and the neighbours unaffected.
package badinput

import (
	"errors"
	"math"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

func TestRequests(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		id := b.sandbox(t, hutch.CreateRequest{})
		for _, c := range badCommands {
			sandbox := id
			if c.sandbox != "" {
				sandbox = c.sandbox
			}
			_, err := b.Exec(t.Context(), sandbox, c.req, nil)
			wantError(t, err, c.kind, c.says, c.name)
		}
		for _, c := range badCreates {
			_, err := b.Create(t.Context(), c.req)
			wantError(t, err, hutch.Invalid, c.says, c.name)
		}
		for _, c := range badProcesses {
			_, err := b.StartProcess(t.Context(), id, c.req)
			wantError(t, err, hutch.Invalid, c.says, c.name)
		}
		for _, n := range []int{-1, 0, 65, 1 << 40} {
			wantError(t, b.Signal(t.Context(), id, "p", n), hutch.Invalid, "signal", "signal")
		}
		b.checkWorks(t, id)
	})
}

var nothing = hutch.ExecRequest{Command: "true"}

var badCommands = []struct {
	name    string
	sandbox string
	req     hutch.ExecRequest
	kind    hutch.Kind
	says    string
}{
	{name: "unknown id", sandbox: "nobody", req: nothing, kind: hutch.NotFound, says: "nobody"},
	{name: "id with upper case", sandbox: "Nobody", req: nothing, kind: hutch.Invalid, says: "upper-case"},
	{name: "id that is a path", sandbox: "../../etc", req: nothing, kind: hutch.Invalid, says: `"."`},
	{name: "id with a hyphen at its end", sandbox: "nobody-", req: nothing, kind: hutch.Invalid, says: "hyphen"},
	{name: "id with a NUL", sandbox: "no\x00body", req: nothing, kind: hutch.Invalid, says: "holds"},
	{name: "id that is not ASCII", sandbox: "nobödy", req: nothing, kind: hutch.Invalid, says: "holds"},
	{name: "id that is not UTF-8", sandbox: "no\xffbody", req: nothing, kind: hutch.Invalid, says: "holds"},
	{name: "id too long", sandbox: strings.Repeat("a", 64), req: nothing, kind: hutch.Invalid, says: "63"},
	{name: "id of a megabyte", sandbox: strings.Repeat("a", 1<<20), req: nothing, kind: hutch.Invalid, says: "63"},
	{name: "empty command", req: hutch.ExecRequest{}, kind: hutch.Invalid, says: "empty"},
	{name: "command with a NUL", req: hutch.ExecRequest{Command: "echo a\x00b"}, kind: hutch.Invalid, says: "NUL"},
	{name: "source with a NUL", req: hutch.ExecRequest{Language: "python", Command: "print('a\x00b')"}, kind: hutch.Invalid, says: "NUL"},
	{name: "command of 10 MB", req: hutch.ExecRequest{Command: "echo " + strings.Repeat("a", 10<<20)}, kind: hutch.Invalid, says: "1048576"},
	{name: "unknown language", req: hutch.ExecRequest{Language: "klingon", Command: "Qapla'"}, kind: hutch.Invalid, says: "python"},
	{name: "language that is a path", req: hutch.ExecRequest{Language: "../bin/sh", Command: "id"}, kind: hutch.Invalid, says: "language"},
	{name: "negative timeout", req: hutch.ExecRequest{Command: "true", Timeout: -1}, kind: hutch.Invalid, says: "timeout"},
	{name: "huge timeout", req: hutch.ExecRequest{Command: "true", Timeout: 1e9}, kind: hutch.Invalid, says: "timeout"},
	{name: "endless timeout", req: hutch.ExecRequest{Command: "true", Timeout: hutch.Seconds(math.Inf(1))}, kind: hutch.Invalid, says: "timeout"},
	{name: "timeout that is no number", req: hutch.ExecRequest{Command: "true", Timeout: hutch.Seconds(math.NaN())}, kind: hutch.Invalid, says: "timeout"},
	{name: "negative output", req: hutch.ExecRequest{Command: "true", MaxOutput: -1}, kind: hutch.Invalid, says: "maxOutput"},
	{name: "huge output", req: hutch.ExecRequest{Command: "true", MaxOutput: math.MaxInt}, kind: hutch.Invalid, says: "maxOutput"},
	{name: "folder that is not there", req: hutch.ExecRequest{Command: "true", Dir: "/no/such"}, kind: hutch.Invalid, says: "/no/such"},
	{name: "folder that is a file", req: hutch.ExecRequest{Command: "true", Dir: "/etc/passwd"}, kind: hutch.Invalid, says: "/etc/passwd"},
	{name: "folder with a NUL", req: hutch.ExecRequest{Command: "true", Dir: "/tmp\x00/x"}, kind: hutch.Invalid, says: "cwd"},
	{name: "relative folder", req: hutch.ExecRequest{Command: "true", Dir: "tmp"}, kind: hutch.Invalid, says: "cwd"},
	{name: "folder that is too long", req: hutch.ExecRequest{Command: "true", Dir: strings.Repeat("/a", 5000)}, kind: hutch.Invalid, says: "cwd"},
	{name: "variable without a name", req: hutch.ExecRequest{Command: "true", Env: map[string]string{"": "x"}}, kind: hutch.Invalid, says: "environment"},
	{name: "variable with '='", req: hutch.ExecRequest{Command: "true", Env: map[string]string{"A=B": "x"}}, kind: hutch.Invalid, says: "environment"},
	{name: "variable with a NUL", req: hutch.ExecRequest{Command: "true", Env: map[string]string{"A": "\x00"}}, kind: hutch.Invalid, says: "environment"},
	{name: "variable of half a megabyte", req: hutch.ExecRequest{Command: "true", Env: map[string]string{"A": strings.Repeat("x", 1<<19)}}, kind: hutch.Invalid, says: "too long"},
	{name: "variable of a megabyte", req: hutch.ExecRequest{Command: "true", Env: map[string]string{"A": strings.Repeat("x", 1<<20)}}, kind: hutch.Invalid, says: "over the limit"},
}

var badCreates = []struct {
	name string
	req  hutch.CreateRequest
	says string
}{
	{"malformed id", hutch.CreateRequest{ID: "a/b"}, "holds"},
	{"unknown runtime", hutch.CreateRequest{Runtime: "cloud"}, "cloud"},
	{"negative CPU", hutch.CreateRequest{Limits: hutch.Limits{CPU: -1}}, "limits.cpu"},
	{"CPU that is no number", hutch.CreateRequest{Limits: hutch.Limits{CPU: math.NaN()}}, "limits.cpu"},
	{"negative memory", hutch.CreateRequest{Limits: hutch.Limits{Memory: -1}}, "limits.memory"},
	{"too little memory", hutch.CreateRequest{Limits: hutch.Limits{Memory: 1}}, "limits.memory"},
	{"all memory there is", hutch.CreateRequest{Limits: hutch.Limits{Memory: math.MaxInt}}, "limits.memory"},
	{"negative disk", hutch.CreateRequest{Limits: hutch.Limits{Disk: -1}}, "limits.disk"},
	{"two processes", hutch.CreateRequest{Limits: hutch.Limits{PIDs: 2}}, "limits.pids"},
	{"negative lifetime", hutch.CreateRequest{Timeout: -1}, "timeout"},
	{"endless sleep", hutch.CreateRequest{SleepAfter: hutch.Seconds(math.Inf(1))}, "sleepAfter"},
	{"unknown action", hutch.CreateRequest{OnIdle: "explode"}, "onIdle"},
	{"variable with a NUL", hutch.CreateRequest{Env: map[string]string{"A": "\x00"}}, "environment"},
}

var badProcesses = []struct {
	name string
	req  hutch.ProcessRequest
	says string
}{
	{"empty command", hutch.ProcessRequest{}, "empty"},
	{"command with a NUL", hutch.ProcessRequest{Command: "a\x00"}, "NUL"},
	{"unknown policy", hutch.ProcessRequest{Command: "true", RestartPolicy: "maybe"}, "restartPolicy"},
	{"name that cannot be printed", hutch.ProcessRequest{Command: "true", Name: "a\x1b[2J"}, "name"},
	{"name too long", hutch.ProcessRequest{Command: "true", Name: strings.Repeat("a", 64)}, "name"},
}

func wantError(t *testing.T, err error, kind hutch.Kind, says, name string) {
	t.Helper()
	e, ok := errors.AsType[*hutch.Error](err)
	switch {
	case !ok:
		t.Errorf("%s: %v; want a *hutch.Error", name, err)
	case e.Kind != kind:
		t.Errorf("%s: %s (%v); want %s", name, e.Kind, err, kind)
	case !strings.Contains(e.Message, says) || len(e.Message) > 1000:
		t.Errorf("%s: the message is %q; it should say %q, in a few words", name, e.Message, says)
	}
}

// The largest requests arrive whole, however busy the sandbox is.
func TestLargeRequests(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		id := b.sandbox(t, hutch.CreateRequest{})
		env := map[string]string{}
		for _, name := range []string{"A", "B", "C", "D"} {
			env[name] = strings.Repeat(name, 250<<10)
		}
		for range 20 {
			_, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "true", Env: env}, nil)
			wantError(t, err, hutch.Invalid, "too long", "an environment of nearly a MiB")
		}
		b.checkWorks(t, id)
	})
}

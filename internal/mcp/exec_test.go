package mcp_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"

	"hutch"
	"hutch/internal/fakeservice"
)

type execResult struct {
	ExitCode      *int
	Stdout        string
	Stderr        string
	Encoding      string
	ExecutionTime *int64
	SandboxID     string `json:"sandboxId"`
	TimedOut      *bool
	Truncated     *bool
}

func TestExec(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{OnExec: printing("hello\n", "a warning\n")}
		ss := connect(t, svc, era)
		res := do(t, ss, "exec", map[string]any{"command": "hello"})
		var got execResult
		fill(t, res, &got)
		if got.Stdout != "hello\n" || got.Stderr != "a warning\n" || *got.ExitCode != 0 || *got.ExecutionTime != 1 || *got.TimedOut || *got.Truncated {
			t.Errorf("structured: %+v", got)
		}
		if want := "exit 0 · 1 ms · " + got.SandboxID + "\nhello\n[stderr]\na warning\n"; text(res) != want {
			t.Errorf("text %q, want %q", text(res), want)
		}
		if made := svc.Created(); len(made) != 1 || made[0].SleepAfter != 300 {
			t.Errorf("created %+v", made)
		}
		again := do(t, ss, "exec", map[string]any{"command": "x", "sandboxId": got.SandboxID})
		if fill(t, again, &got); len(svc.Created()) != 1 {
			t.Errorf("a call with an id made a sandbox")
		}
	})
}

func TestExecPassesArguments(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		seen := make(chan hutch.ExecRequest, 1)
		svc := &fakeservice.Service{}
		svc.OnExec = observing(seen)
		ss := connect(t, svc, era)
		do(t, ss, "exec", map[string]any{
			"command": "print(1)", "language": "python", "timeout": 1.5, "env": map[string]string{"A": "b"}, "cwd": "/tmp",
		})
		req := <-seen
		if req.Command != "print(1)" || req.Language != "python" || req.Timeout != 1.5 || req.Env["A"] != "b" || req.Dir != "/tmp" {
			t.Errorf("request %+v", req)
		}
	})
}

func TestExecLongOutput(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		long := strings.Repeat("ä line of output\n", 100_000)
		ss := connect(t, &fakeservice.Service{OnExec: printing("FIRST\n"+long+"LAST\n", "")}, era)
		res := do(t, ss, "exec", map[string]any{"command": "x"})
		var got execResult
		fill(t, res, &got)
		for what, s := range map[string]string{"text": text(res), "stdout": got.Stdout} {
			if len(s) > 20_500 || len(s) < 19_000 || !utf8.ValidString(s) {
				t.Errorf("%s has %d bytes", what, len(s))
			}
			for _, want := range []string{"FIRST\n", "LAST\n", "bytes left out", "/tmp/out"} {
				if !strings.Contains(s, want) {
					t.Errorf("%s lacks %q", what, want)
				}
			}
		}
		if !*got.Truncated {
			t.Error("not said to be truncated")
		}
	})
}

func TestExecBothStreamsLong(t *testing.T) {
	t.Parallel()
	ss := connect(t, &fakeservice.Service{OnExec: printing(strings.Repeat("o", 50_000), strings.Repeat("e", 50_000))}, modern)
	var got execResult
	fill(t, do(t, ss, "exec", map[string]any{"command": "x"}), &got)
	if o, e := strings.Count(got.Stdout, "o"), strings.Count(got.Stderr, "e"); o < 9_900 || e < 9_900 || o+e > 20_500 {
		t.Errorf("%d bytes of stdout and %d of stderr, want half of the room each", o, e)
	}
}

func TestExecBinaryOutput(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		raw := "\x00\xff\xfe\x80binary\xc3"
		ss := connect(t, &fakeservice.Service{OnExec: printing(raw, "plain")}, era)
		res := do(t, ss, "exec", map[string]any{"command": "x"})
		var got execResult
		fill(t, res, &got)
		out, err := base64.StdEncoding.DecodeString(got.Stdout)
		if got.Encoding != "base64" || err != nil || string(out) != raw {
			t.Errorf("structured %+v: %q %v", got, out, err)
		}
		if e, _ := base64.StdEncoding.DecodeString(got.Stderr); string(e) != "plain" {
			t.Errorf("stderr %q", got.Stderr)
		}
		if !utf8.ValidString(text(res)) || !strings.Contains(text(res), "binary") || !strings.Contains(text(res), "base64") {
			t.Errorf("text %q", text(res))
		}
	})
}

func TestExecWithoutOutput(t *testing.T) {
	t.Parallel()
	res := do(t, connect(t, &fakeservice.Service{OnExec: printing("", "")}, modern), "exec", map[string]any{"command": "true"})
	if !strings.HasSuffix(text(res), "\n[no output]") {
		t.Errorf("text %q", text(res))
	}
}

// TestExecBrokenOff loses the sandbox in the middle of a command, and checks that the output until then is not lost.
func TestExecBrokenOff(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc := &fakeservice.Service{OnExec: func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
			res, _ := fakeservice.Print(id, req, out, hutch.Stdout, "half\n")
			return res, hutch.Errorf(hutch.Unavailable, "the sandbox is gone")
		}}
		f := mustFail(t, connect(t, svc, era), "exec", map[string]any{"command": "x"}, -32000)
		if f.Data["stdout"] != "half\n" || f.Data["exitCode"] != -1.0 {
			t.Errorf("data %v", f.Data)
		}
	})
}

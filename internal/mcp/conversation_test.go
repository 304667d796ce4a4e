package mcp_test

import (
	"context"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/conversation"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// talks is a fake of Conversations. Every run prints its code, creates files, and ends as the test sets it.
type talks struct {
	end   hutch.ExecResult
	err   error
	files int
}

func (c talks) Run(_ context.Context, req conversation.Request, out func(hutch.Output) error) (conversation.Result, error) {
	res := conversation.Result{ExecResult: c.end}
	res.Stdout = []byte(req.Code)
	if err := out(hutch.Output{Stream: hutch.Stdout, Data: res.Stdout}); err != nil {
		return res, err
	}
	for range c.files {
		res.Files = append(res.Files, conversation.File{Name: "a\nb", Size: 2, URL: "http://x/files/c/a%0Ab?sig=1"})
	}
	return res, c.err
}

func (talks) Runners(context.Context) ([]hutch.Language, error) {
	return []hutch.Language{{Name: "python", Version: "3.11", Aliases: []string{"py"}}}, nil
}

func converse(t *testing.T, era string, c talks) *client {
	t.Helper()
	_, url := serve(t, &fakeservice.Service{}, mcp.Options{Conversations: c, OnlyConversations: true})
	return dial(t, url, era, nil)
}

var code = map[string]any{"conversationId": "c", "language": "python", "code": "hi"}

func TestConversation(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		ss := converse(t, era, talks{files: 120, end: hutch.ExecResult{ExitCode: 3}})
		list, err := ss.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 2 || list.Tools[0].Name != "sandbox.list_runners" || list.Tools[1].Name != "sandbox.run_code" {
			t.Errorf("tools %+v, %v", list, err)
		}
		res := do(t, ss, "sandbox.run_code", code)
		var got map[string]any
		fill(t, res, &got)
		files, _ := got["files"].([]any)
		if got["conversationId"] != "c" || got["language"] != "python" || got["exitCode"] != 3.0 || got["stdout"] != "hi" || len(files) != 100 || got["moreFiles"] != 20.0 {
			t.Errorf("result %v", got)
		}
		if s := text(res); !strings.HasPrefix(s, "exit 3 · ") || strings.Count(s, "http://x/files/c/a%0Ab?sig=1\n") != 100 || strings.Contains(s, "a\nb") {
			t.Errorf("text %q", s)
		}
		var runners struct{ Runners []map[string]any }
		fill(t, do(t, ss, "sandbox.list_runners", nil), &runners)
		if len(runners.Runners) != 1 || runners.Runners[0]["language"] != "python" || runners.Runners[0]["version"] != "3.11" {
			t.Errorf("runners %v", runners)
		}
	})
}

func TestConversationWithoutFiles(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		var got map[string]any
		fill(t, do(t, converse(t, era, talks{}), "sandbox.run_code", code), &got)
		if files, ok := got["files"].([]any); !ok || len(files) != 0 {
			t.Errorf("files are %v, want an empty list", got["files"])
		}
	})
}

func TestConversationFailures(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		for _, c := range []struct {
			talks
			args map[string]any
			code int64
			data map[string]any
		}{
			{talks{end: hutch.ExecResult{TimedOut: true, ExitCode: 137}}, code, -32002, map[string]any{"stdout": "hi", "timedOut": true, "conversationId": "c"}},
			{talks{end: hutch.ExecResult{Limit: "memory"}}, code, -32003, map[string]any{"limit": "memory", "stdout": "hi"}},
			{talks{err: hutch.Errorf(hutch.Exhausted, "full").With("limit", "files")}, code, -32003, map[string]any{"limit": "files", "stdout": "hi"}},
			{talks{err: hutch.Errorf(hutch.Invalid, "no").With("field", "language")}, code, -32004, nil},
			{talks{}, map[string]any{"conversationId": "c", "language": "python"}, -32004, nil},
			{talks{}, map[string]any{"conversationId": "c", "code": "x"}, -32004, nil},
			{talks{}, map[string]any{"language": "python", "code": "x"}, -32600, nil},
			{talks{}, map[string]any{"conversationId": 7, "language": "python", "code": "x"}, -32600, nil},
		} {
			f := mustFail(t, converse(t, era, c.talks), "sandbox.run_code", c.args, c.code)
			for k, want := range c.data {
				if f.Data[k] != want {
					t.Errorf("%v: data[%q] is %v, want %v", c.args, k, f.Data[k], want)
				}
			}
		}
	})
}

// The result of sandbox.run_code names what the network denied. A hostile host name cannot add text to that
// sentence.
func TestDeniedInConversation(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		denied := []string{"api.example.com", "x\x1b[2Jy"}
		res := do(t, converse(t, era, talks{end: hutch.ExecResult{ExitCode: 6, Denied: denied}}), "sandbox.run_code", code)
		var got struct{ Denied []string }
		fill(t, res, &got)
		if len(got.Denied) != 2 || got.Denied[0] != "api.example.com" {
			t.Errorf("denied is %q", got.Denied)
		}
		if s := text(res); !strings.Contains(s, "[the network denied api.example.com, ") || strings.Contains(s, "\x1b") {
			t.Errorf("text %q", s)
		}
		f := mustFail(t, converse(t, era, talks{end: hutch.ExecResult{TimedOut: true, ExitCode: 137, Denied: denied[:1]}}), "sandbox.run_code", code, -32002)
		if list, _ := f.Data["denied"].([]any); len(list) != 1 || list[0] != "api.example.com" {
			t.Errorf("after the time limit, denied is %v", f.Data["denied"])
		}
	})
}

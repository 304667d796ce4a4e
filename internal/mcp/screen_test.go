package mcp_test

import (
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/fakeservice"
)

// The tool accepts the actions of a computer-use model unchanged, and returns a screenshot as an image.
func TestComputer(t *testing.T) {
	svc := &fakeservice.Service{}
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	ss := connect(t, svc, "2026-07-28")
	call := func(arguments args) *sdk.CallToolResult {
		t.Helper()
		arguments["sandboxId"] = "s"
		res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "computer", Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	said := func(res *sdk.CallToolResult) string { return res.Content[0].(*sdk.TextContent).Text }

	res := call(args{"action": "screenshot"})
	img, ok := res.Content[len(res.Content)-1].(*sdk.ImageContent)
	if !ok || img.MIMEType != "image/png" || !strings.HasPrefix(string(img.Data), "\x89PNG") {
		t.Errorf("a screenshot: %+v", res.Content)
	}
	for _, arguments := range []args{
		{"action": "left_click", "coordinate": []int{1, 2}, "text": "ctrl"}, {"action": "left_click_drag", "start_coordinate": []int{1, 2}, "coordinate": []int{3, 4}},
		{"action": "scroll", "coordinate": []int{1, 2}, "scroll_direction": "down", "scroll_amount": 5}, {"action": "type", "text": "hello"}, {"action": "cursor_position"},
	} {
		if res := call(arguments); res.IsError || len(res.Content) != 1 || !strings.Contains(said(res), "pointer at 3,4") {
			t.Errorf("%v: %+v", arguments, res.Content)
		}
	}
	if got := said(call(args{"action": "read_clipboard"})); got != "copied" {
		t.Errorf("the clipboard: %q", got)
	}
	if res := call(args{"action": "write_clipboard", "text": "x"}); res.IsError {
		t.Errorf("writing the clipboard: %q", said(res))
	}
	if res := call(args{"action": "open_url", "text": "https://example.com"}); res.IsError {
		t.Errorf("a page: %q", said(res))
	}
	for _, arguments := range []args{{"action": "type"}, {"action": "mouse_move", "coordinate": []int{-1, 2}}, {"action": "open_url", "text": "--version"}} {
		if res := call(arguments); !res.IsError {
			t.Errorf("%v: %q is no error", arguments, said(res))
		}
	}
}

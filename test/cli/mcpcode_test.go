package cli

import (
	"bytes"
	"image/png"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch/internal/hutchtest"
)

// TestCodeOverMCP uses an interpreter over several calls, as a model does.
func TestCodeOverMCP(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			session := connect(t, runtime)
			defer session.Close()
			sandbox := execOver(t, session, map[string]any{"command": "true"})["sandboxId"]
			code := func(source string, more ...any) (*mcp.CallToolResult, string) {
				args := map[string]any{
					"sandboxId": sandbox, "sessionId": "notebook", "language": "python", "command": source, "timeout": 60,
				}
				for i := 0; i < len(more); i += 2 {
					args[more[i].(string)] = more[i+1]
				}
				res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "exec", Arguments: args})
				if err != nil {
					return nil, err.Error()
				}
				return res, res.Content[0].(*mcp.TextContent).Text
			}
			code("x = 41")
			if _, text := code("print('seen'); x + 1"); !strings.Contains(text, "exit 0") || !strings.Contains(text, "seen\n42") {
				t.Errorf("a value: %q", text)
			}
			if _, text := code("x / 0"); !strings.Contains(text, "exit 1") || !strings.Contains(text, "ZeroDivisionError: division by zero") {
				t.Errorf("an error: %q", text)
			}
			checkFigure(t, code)
			if _, text := code("while True: pass", "timeout", 0.5); !strings.Contains(text, "kept its variables") {
				t.Errorf("a time limit: %q", text)
			}
			if _, text := code("x"); !strings.Contains(text, "41") || strings.Contains(text, "fresh") {
				t.Errorf("after it: %q", text)
			}
			if _, text := code("import os; os._exit(3)"); !strings.Contains(text, "variables are gone") {
				t.Errorf("its end: %q", text)
			}
			if _, text := code("'x' in globals()"); !strings.Contains(text, "False") || !strings.Contains(text, "a fresh one") {
				t.Errorf("after its end: %q", text)
			}
		})
	}
}

// checkFigure draws a figure, which must arrive as an image.
func checkFigure(t *testing.T, code func(string, ...any) (*mcp.CallToolResult, string)) {
	t.Helper()
	// The first Python on the PATH can be one that does not see Debian's packages.
	res, text := code("import sys; sys.path.append('/usr/lib/python3/dist-packages')\nimport matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nNone")
	if strings.Contains(text, "ModuleNotFoundError") {
		if os.Getenv("CI") != "" {
			t.Error("this machine has no python3-matplotlib")
		}
		t.Log("no figure without python3-matplotlib")
		return
	}
	if res == nil || len(res.Content) != 2 {
		t.Errorf("a figure: %q", text)
		return
	}
	image, ok := res.Content[1].(*mcp.ImageContent)
	if !ok || image.MIMEType != "image/png" {
		t.Errorf("a figure: %+v", res.Content[1])
		return
	}
	if _, err := png.Decode(bytes.NewReader(image.Data)); err != nil {
		t.Errorf("a figure: %v", err)
	}
}

package mcp_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/files"
)

// withFiles returns a service with the sandbox "s", whose files are in dir.
func withFiles(t *testing.T) (svc *fakeservice.Service, dir string) {
	t.Helper()
	dir = t.TempDir()
	svc = &fakeservice.Service{OnFiles: &files.FS{Dir: dir}}
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	return svc, dir
}

type args = map[string]any

func TestFileTools(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc, dir := withFiles(t)
		ss := connect(t, svc, era)
		use := func(tool string, a args) string {
			t.Helper()
			a["sandboxId"] = "s"
			res, f := try(t, ss, tool, a)
			if f != nil {
				return f.Message
			}
			return text(res)
		}
		for _, step := range []struct {
			tool string
			args args
			want string
		}{
			{"writeFile", args{"path": "a/b.txt", "content": "one\ntwo\ntwo"}, "wrote 11 bytes to " + dir + "/a/b.txt"},
			{"readFile", args{"path": "a/b.txt"}, "     1\tone\n     2\ttwo\n     3\ttwo\n"},
			{"readFile", args{"path": "a/b.txt", "firstLine": 2, "lastLine": 2}, "     2\ttwo\n"},
			{"readFile", args{"path": "a/b.txt", "firstLine": 9}, "has no line 9"},
			{"editFile", args{"path": "a/b.txt", "oldText": "two", "newText": "2"}, "2 times"},
			{"editFile", args{"path": "a/b.txt", "oldText": "one\ntwo", "newText": "1"}, "replaced 1 × in " + dir + "/a/b.txt, first in line 1"},
			{"listFiles", args{"path": "a"}, "/a/b.txt  5\n"},
			{"listFiles", args{"path": ".", "glob": "*.go"}, "[nothing]"},
			{"readFile", args{"path": "none"}, "does not exist"},
			{"readFile", args{}, "the argument path is missing"},
		} {
			if got := use(step.tool, step.args); !strings.Contains(got, step.want) {
				t.Errorf("%s %v: %q, want %q", step.tool, step.args, got, step.want)
			}
		}
		if strings.Contains(use("readFile", args{"path": "none"}), "sandbox not found") {
			t.Error("a missing file is taken for a missing sandbox")
		}
		if err := os.WriteFile(filepath.Join(dir, "bin"), []byte("\x00\x01\xff"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := use("readFile", args{"path": "bin"}); !strings.Contains(got, "not UTF-8 text") || !strings.HasSuffix(got, "\nAAH/") {
			t.Errorf("%q", got)
		}
		if err := os.WriteFile(filepath.Join(dir, "bin"), bytes.Repeat([]byte{0xff}, 30_000), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := use("readFile", args{"path": "bin"}); !strings.Contains(got, "30000 bytes") || len(got) > 20_300 {
			t.Errorf("%d bytes: %.300q", len(got), got)
		}
	})
}

// TestWhatIsInside: if a call fails because of a file or a process in the sandbox, the model gets the error as the
// result of the tool in both eras.
func TestWhatIsInside(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		svc, dir := withFiles(t)
		if err := os.WriteFile(filepath.Join(dir, "twice"), []byte("a a"), 0o644); err != nil {
			t.Fatal(err)
		}
		ss := connect(t, svc, era)
		for _, c := range []struct {
			tool string
			args args
			want string
		}{
			{"readFile", args{"path": "none"}, "does not exist"},
			{"editFile", args{"path": "twice", "oldText": "a", "newText": "b"}, "2 times"},
			{"waitProcess", args{"processId": "p-none"}, "no process"},
			{"waitProcess", args{"processId": "none"}, "no process"},
		} {
			c.args["sandboxId"] = "s"
			res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: c.args})
			if err != nil || !res.IsError || !strings.Contains(text(res), c.want) {
				t.Errorf("%s %v: %v, %+v", c.tool, c.args, err, res)
			}
			c.args["sandboxId"] = "gone"
			mustFail(t, ss, c.tool, c.args, -32001)
		}
	})
}

func TestLongFiles(t *testing.T) {
	svc, dir := withFiles(t)
	ss := connect(t, svc, "2026-07-28")
	line := strings.Repeat("x", 99) + "\n"
	for name, content := range map[string]string{"lines": strings.Repeat(line, 1000), "line": strings.Repeat("y", 100_000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"lines": "[lines 1 to 186, of 100000 bytes in all: continue with firstLine 187", "line": "line 1 is longer than 19993 bytes"} {
		res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "readFile", Arguments: args{"sandboxId": "s", "path": name}})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Content[0].(*sdk.TextContent).Text; !strings.Contains(got, want) || len(got) > 20_300 {
			t.Errorf("%d bytes, ending in %q", len(got), got[max(0, len(got)-200):])
		}
	}
}

func TestImagesAreImages(t *testing.T) {
	svc, dir := withFiles(t)
	ss := connect(t, svc, "2026-07-28")
	png := "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00pixels", 10_000)
	if err := os.WriteFile(filepath.Join(dir, "p.png"), []byte(png), 0o644); err != nil {
		t.Fatal(err)
	}
	res, err := ss.CallTool(t.Context(), &sdk.CallToolParams{Name: "readFile", Arguments: args{"sandboxId": "s", "path": "p.png"}})
	if err != nil {
		t.Fatal(err)
	}
	img, ok := res.Content[len(res.Content)-1].(*sdk.ImageContent)
	if !ok || string(img.Data) != png || img.MIMEType != "image/png" {
		t.Errorf("%+v", res.Content)
	}
}

package openterminal_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/openterminal"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/preview"
)

type bench struct {
	*httptest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service) *bench {
	t.Helper()
	h := openterminal.NewHandler(svc, openterminal.Options{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as a guard does
		h.ServeHTTP(w, r.WithContext(caller.WithOwner(r.Context(), caller.Owner{ID: r.Header.Get("Owner")})))
	}))
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return &bench{srv, t}
}

// user is a client of Open WebUI: a user in a chat.
type user struct {
	*bench
	id, chat string
}

func (u user) do(method, path, contentType, body string) (int, http.Header, string) {
	u.t.Helper()
	req, err := http.NewRequestWithContext(u.t.Context(), method, u.URL+"/openterminal"+path, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	req.Header.Set("X-User-Id", u.id)
	req.Header.Set("X-Session-Id", u.chat)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(got)
}

type fields = map[string]any

// ask makes a request that must succeed, with parameters in the query if it is a GET and else in the body.
func (u user) ask(route string, v any, params fields) string {
	u.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	body := ""
	if method == "POST" {
		b, _ := json.Marshal(params)
		body = string(b)
	} else if params != nil {
		q := url.Values{}
		for name, p := range params {
			q.Add(name, fmt.Sprint(p))
		}
		path += "?" + q.Encode()
	}
	status, _, text := u.do(method, path, "application/json", body)
	if status != http.StatusOK {
		u.t.Fatalf("%s %v: %d %s", route, params, status, text)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			u.t.Fatalf("%s: %s: %v", route, text, err)
		}
	}
	return text
}

type process struct {
	ID, Status string
	Code       *int `json:"exit_code"`
	Output     []struct{ Type, Data string }
	Next       int64 `json:"next_offset"`
	Truncated  bool
}

func (p process) text(stream string) string {
	var s string
	for _, e := range p.Output {
		if e.Type == stream {
			s += e.Data
		}
	}
	return s
}

// TestCommands: the five tools for commands.
func TestCommands(t *testing.T) {
	t.Parallel()
	u := user{serve(t, fakeengine.Start(t)), "ada", ""}
	var p process
	u.ask("POST /execute?wait=20", &p, fields{"command": "echo out; echo err >&2; echo $X; exit 3", "env": fields{"X": "of env"}})
	if p.Status != "done" || *p.Code != 3 || p.text("stdout") != "out\nof env\n" || p.text("stderr") != "err\n" {
		t.Errorf("%+v", p)
	}
	u.ask("GET /execute/"+p.ID+"/status", &p, fields{"tail": 1})
	if len(p.Output) != 1 || !p.Truncated {
		t.Errorf("the tail: %+v", p)
	}
	p = process{}
	u.ask("POST /execute", &p, fields{"command": `read -r a; echo "got $a"; sleep 100`})
	if p.Status != "running" || p.Code != nil {
		t.Errorf("%+v", p)
	}
	u.ask("POST /execute/"+p.ID+"/input", nil, fields{"input": `it\n`})
	offset, seen := p.Next, ""
	for deadline := time.Now().Add(20 * time.Second); seen != "got it\n" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		q := process{}
		u.ask("GET /execute/"+p.ID+"/status", &q, fields{"offset": offset})
		offset, seen = q.Next, seen+q.text("stdout")
	}
	if seen != "got it\n" {
		t.Errorf("the output is %q", seen)
	}
	if text := u.ask("DELETE /execute/"+p.ID, nil, fields{"force": true}); text != `{"status":"killed"}`+"\n" {
		t.Error(text)
	}
	var list []process
	u.ask("GET /execute", &list, nil)
	if len(list) != 2 || list[1].Status != "killed" || *list[1].Code != -9 {
		t.Errorf("%+v", list)
	}
	for _, route := range []string{"GET /execute/none/status", "DELETE /execute/none", "POST /execute/none/input"} {
		method, path, _ := strings.Cut(route, " ")
		if status, _, text := u.do(method, path, "application/json", `{"input":"x"}`); status != http.StatusNotFound || !strings.HasPrefix(text, `{"detail":"`) {
			t.Errorf("%s: %d %s", route, status, text)
		}
	}
}

// TestManyLines: an answer has a bounded number of entries, but contains all output.
func TestManyLines(t *testing.T) {
	t.Parallel()
	u := user{serve(t, fakeengine.Start(t)), "ada", ""}
	const lines = 100_000
	var p process
	u.ask("POST /execute?wait=30", &p, fields{"command": fmt.Sprintf("yes '' | head -c %d", lines)})
	seen := 0
	for deadline := time.Now().Add(60 * time.Second); seen < lines && time.Now().Before(deadline); {
		q := process{}
		u.ask("GET /execute/"+p.ID+"/status", &q, fields{"offset": seen})
		if len(q.Output) > 5001 || q.Next != int64(seen+len(q.text("stdout"))) {
			t.Fatalf("%d entries with %d bytes from %d to %d", len(q.Output), len(q.text("stdout")), seen, q.Next)
		}
		seen = int(q.Next)
	}
	if seen != lines {
		t.Errorf("%d of %d lines", seen, lines)
	}
}

// TestFiles: the tools for files, and what the file browser calls.
func TestFiles(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t))
	u := user{b, "ada", "chat 1"}
	var at struct{ Cwd, Home, Path, Content string }
	u.ask("GET /files/cwd", &at, nil)
	home := at.Home
	if at.Cwd != home || home == "" {
		t.Errorf("%+v", at)
	}
	u.ask("POST /files/write", nil, fields{"path": "src/a.py", "content": "one\ntwo\nTwo\nthree\n"})
	u.ask("GET /files/read", &at, fields{"path": "src/a.py", "start_line": 2, "end_line": 3})
	if at.Content != "two\nTwo\n" || at.Path != home+"/src/a.py" {
		t.Errorf("%+v", at)
	}
	u.ask("POST /files/replace", nil, fields{"path": "src/a.py", "replacements": []fields{{"target": "two", "replacement": "2"}, {"target": "t", "replacement": "T", "start_line": 4}}})
	if u.ask("GET /files/read", &at, fields{"path": "src/a.py"}); at.Content != "one\n2\nTwo\nThree\n" {
		t.Errorf("%q", at.Content)
	}
	if status, _, text := u.do("POST", "/files/replace", "application/json", `{"path":"src/a.py","replacements":[{"target":"one","replacement":"1"},{"target":"T","replacement":"x"}]}`); status != 400 || !strings.Contains(text, "2 occurrences") {
		t.Errorf("%d %s", status, text)
	}
	if u.ask("GET /files/read", &at, fields{"path": "src/a.py"}); !strings.HasPrefix(at.Content, "one") {
		t.Error("half of the replacements were made")
	}
	u.ask("POST /files/cwd", nil, fields{"path": "src"})
	if u.ask("GET /files/cwd", &at, nil); at.Cwd != home+"/src" {
		t.Errorf("%+v", at)
	}
	var p process
	if u.ask("POST /execute?wait=20", &p, fields{"command": "ls"}); p.text("stdout") != "a.py\n" {
		t.Errorf("%+v", p)
	}
	if other := (user{b, "ada", "chat 2"}); !strings.Contains(other.ask("GET /files/list", nil, nil), `"name":"src"`) {
		t.Error("another chat begins elsewhere")
	}
	if text := u.ask("GET /files/grep", nil, fields{"query": "^tw", "case_insensitive": true, "path": "~", "include": "*.py"}); !strings.Contains(text, `"line":3,"content":"Two"`) || strings.Contains(text, `"truncated":true`) {
		t.Error(text)
	}
	if text := u.ask("GET /files/glob", nil, fields{"pattern": "*.py", "path": "~", "type": "file"}); !strings.Contains(text, `"path":"src/a.py"`) {
		t.Error(text)
	}
	if text := u.ask("GET /files/display", nil, fields{"path": "none"}); !strings.Contains(text, `"exists":false`) {
		t.Error(text)
	}
	upload := "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../../up.png\"\r\n\r\n\x89PNG\x00\xff\r\n--B--\r\n"
	if status, _, text := u.do("POST", "/files/upload?directory=~/in", "multipart/form-data; boundary=B", upload); status != 200 || !strings.Contains(text, `"path":"`+home+`/in/up.png","size":6`) {
		t.Errorf("upload: %d %s", status, text)
	}
	for _, path := range []string{"/files/read?path=~/in/up.png", "/files/view?path=~/in/up.png", "/files/serve" + home + "/in/up.png"} {
		if status, head, text := u.do("GET", path, "", ""); status != 200 || text != "\x89PNG\x00\xff" || head.Get("Content-Type") != "image/png" || path[7] != 'r' && head.Get("Content-Security-Policy") != preview.UniqueOrigin {
			t.Errorf("%s: %d %v %q", path, status, head, text)
		}
	}
	u.ask("POST /files/move", nil, fields{"source": "~/in/up.png", "destination": "~/in/up.bin"})
	if status, _, text := u.do("GET", "/files/read?path=~/in/up.bin", "", ""); status != http.StatusUnsupportedMediaType {
		t.Errorf("%d %s", status, text)
	}
	u.ask("POST /files/mkdir", nil, fields{"path": "~/a/b"})
	_, _, text := u.do("POST", "/files/archive", "application/json", `{"paths":["~/in"]}`)
	if z, err := zip.NewReader(bytes.NewReader([]byte(text)), int64(len(text))); err != nil || len(z.File) == 0 || !strings.HasPrefix(z.File[len(z.File)-1].Name, "in/") {
		t.Errorf("the archive: %v", err)
	}
	u.ask("DELETE /files/delete", nil, fields{"path": "~/in"})
	if status, _, text := u.do("GET", "/files/list?directory=~/in", "", ""); status != http.StatusNotFound {
		t.Errorf("%d %s", status, text)
	}
}

// TestRankedSearches: what fits a search best comes first, by name and by content.
func TestRankedSearches(t *testing.T) {
	t.Parallel()
	u := user{serve(t, fakeengine.Start(t)), "ada", "chat"}
	for name, content := range map[string]string{
		"w/todo": "x", "w/todo.md": "x", "w/my-todo": "x", "w/todos/list.txt": "x", "w/other.txt": "one\n\u00fc\U0001f600 ToDo\ntodo\ntodo\ntodo\n", "w/.hidden/todo": "x", "w/none": "x", "w/blob": "todo\x00",
	} {
		u.ask("POST /files/write", nil, fields{"path": name, "content": content})
	}
	var got struct {
		Results []struct {
			Path, Name, Type string
			Relative         string `json:"relative_path"`
			ByName           bool   `json:"name_match"`
			Lines            []struct {
				Line, Column int
				Text         string
			} `json:"content_matches"`
		}
		Next *int `json:"next_offset"`
	}
	names := func() (list string) {
		for _, r := range got.Results {
			list += " " + r.Path[strings.Index(r.Path, "/w/")+3:]
		}
		return list
	}
	for _, c := range []struct {
		params fields
		want   string
	}{
		{fields{"query": "TODO", "path": "w"}, " todo todos todo.md my-todo"}, {fields{"query": "todo", "path": "w", "limit": 1}, " todo"}, {fields{"query": "todo", "path": "w", "type": "directory"}, " todos"},
		{fields{"query": "todo", "path": "w", "show_hidden": true, "limit": 2}, " .hidden/todo todo"}, {fields{"query": "list", "path": "w/todos"}, " todos/list.txt"},
	} {
		if u.ask("GET /files/search", &got, c.params); names() != c.want {
			t.Errorf("%v: %s", c.params, names())
		}
	}
	got.Results = nil
	u.ask("GET /files/matches", &got, fields{"query": "todo", "path": "w"})
	if want := " todo todos todo.md my-todo todos/list.txt other.txt"; names() != want || got.Next != nil {
		t.Fatalf("%s, %v", names(), got.Next)
	}
	if last := got.Results[5]; last.ByName || len(last.Lines) != 3 || last.Lines[0].Line != 2 || last.Lines[0].Column != 5 || last.Lines[0].Text != "\u00fc\U0001f600 ToDo" || last.Relative != "other.txt" {
		t.Errorf("%+v", last)
	}
	if first := got.Results[0]; !first.ByName || first.Type != "file" || first.Lines == nil {
		t.Errorf("%+v", first)
	}
	got.Results = nil
	if u.ask("GET /files/matches", &got, fields{"query": "todo", "path": "w", "offset": 4, "limit": 1}); names() != " todos/list.txt" || got.Next == nil || *got.Next != 5 {
		t.Errorf("a page: %s, %v", names(), got.Next)
	}
	for _, path := range []string{"/files/search?query=x&path=nowhere", "/files/matches?query=x&path=nowhere"} {
		if status, _, text := u.do("GET", path, "", ""); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// TestSkills: the skills in the user's home, and their texts.
func TestSkills(t *testing.T) {
	t.Parallel()
	u := user{serve(t, fakeengine.Start(t)), "ada", "chat"}
	if text := u.ask("GET /skills", nil, nil); strings.TrimSpace(text) != "[]" {
		t.Errorf("a user without skills has %s", text)
	}
	for name, content := range map[string]string{
		".claude/skills/first/SKILL.md": "---\nname: make a list\ndescription: >-\n  Makes\n  lists: quickly\nother: x\n---\n\nDo this.\n", ".claude/skills/first/data/table.csv": "1",
		".agents/skills/plain/SKILL.md": "---\ndescription: \"says why\"\n---\nText", ".codex/skills/again/SKILL.md": "---\nname: plain\ndescription: a second one\n---\nNo",
		".codex/skills/silent/SKILL.md": "no front matter", ".claude/skills/file": "x", ".claude/skills/binary/SKILL.md": "---\nname: b\ndescription: \x00\n---\n",
	} {
		u.ask("POST /files/write", nil, fields{"path": "~/" + name, "content": content})
	}
	var list []struct{ ID, Name, Description, Location, Scope, Source string }
	u.ask("GET /skills", &list, nil)
	if len(list) != 3 || list[0].Name != "plain" || list[0].Description != "says why" || list[2].ID != "terminal:make%20a%20list" || list[2].Description != "Makes lists: quickly" || !strings.HasSuffix(list[2].Location, "/.claude/skills/first/SKILL.md") {
		t.Fatalf("%+v", list)
	}
	var one struct {
		Name, Content string
		Resources     []string
	}
	if u.ask("GET /skills/read", &one, fields{"name": "make a list"}); one.Name != "make a list" || one.Content != "Do this." || len(one.Resources) != 1 || one.Resources[0] != "data/table.csv" {
		t.Errorf("%+v", one)
	}
	if status, _, text := u.do("GET", "/skills/read?name=none", "", ""); status != http.StatusNotFound || !strings.Contains(text, "Skill not found") {
		t.Errorf("%d %s", status, text)
	}
}

// TestUsersAreApart: each user of each owner has a sandbox, which ends by itself.
func TestUsersAreApart(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc)
	user{b, "ada", "c"}.ask("POST /files/write", nil, fields{"path": "secret", "content": "of ada"})
	var p process
	user{b, "ada", "c"}.ask("POST /execute", &p, fields{"command": "sleep 100"})
	for _, id := range []string{"bob", "", "Ada", "ada "[:3] + "x", "../ada"} {
		other := user{b, id, "c"}
		if status, _, text := other.do("GET", "/files/read?path=secret", "", ""); status != http.StatusNotFound {
			t.Errorf("%q reads: %d %s", id, status, text)
		}
		if status, _, text := other.do("GET", "/execute/"+p.ID+"/status", "", ""); status != http.StatusNotFound {
			t.Errorf("%q sees: %d %s", id, status, text)
		}
	}
	list, err := svc.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != 6 {
		t.Fatalf("%d sandboxes: %v", len(list), err)
	}
	for _, sb := range list {
		if sb.ExpiresAt == nil || time.Until(*sb.ExpiresAt) > 8*24*time.Hour {
			t.Errorf("%s ends at %v", sb.ID, sb.ExpiresAt)
		}
	}
}

// TestDocument: each tool has the name that models know, and a route.
func TestDocument(t *testing.T) {
	t.Parallel()
	u := user{serve(t, fakeengine.Start(t)), "ada", ""}
	var doc struct {
		Paths map[string]map[string]struct {
			ID         string `json:"operationId"`
			Parameters []struct{ Name, In string }
		}
	}
	u.ask("GET /openapi.json", &doc, nil)
	ids := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			ids[op.ID] = true
			if status, _, text := u.do(strings.ToUpper(method), strings.Replace(path, "{process_id}", "p", 1), "application/json", "{}"); strings.Contains(text, `"Not Found"`) || status == http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d %s", method, path, status, text)
			}
		}
	}
	for _, id := range []string{
		"run_command", "get_process_status", "send_process_input", "kill_process", "list_processes", "list_files", "read_file", "display_file", "write_file", "replace_file_content", "grep_search", "glob_search",
		"search_files", "match_files", "read_user_terminal", "send_user_terminal_input",
	} {
		if !ids[id] {
			t.Errorf("there is no tool %s", id)
		}
	}
	if text := u.ask("GET /api/config", nil, nil); !strings.Contains(text, `"terminal":true`) || !strings.Contains(text, `"system":true`) {
		t.Error(text)
	}
	var system struct{ Prompt string }
	if u.ask("GET /system", &system, nil); !strings.Contains(system.Prompt, "run_command") {
		t.Errorf("the system prompt is %q", system.Prompt)
	}
}

// TestRefused: bad input is refused in the shape that clients read.
func TestRefused(t *testing.T) {
	t.Parallel()
	u := user{serve(t, fakeengine.Start(t)), "ada", ""}
	for route, body := range map[string]string{
		"POST /execute": `{"command":""}`, "POST /execute?wait=1000": `{"command":"true"}`, "POST /execute?wait=NaN": `{"command":"true"}`, "POST /execute?tail=0": `{"command":"true"}`,
		"GET /files/read": "", "GET /files/read?path=x&start_line=-1": "", "POST /files/write": `{"content":"x"}`, "POST /files/replace": `{"path":"x","replacements":[]}`, "POST /files/move": `{"source":"x"}`,
		"GET /files/grep?query=(": "", "GET /files/grep": "", "GET /files/glob?pattern=[": "", "GET /files/glob?pattern=x&type=y": "", "POST /files/archive": `{"paths":[]}`, "POST /files/upload?directory=x": "x",
		"POST /files/archive?": `{"paths":["x"` + strings.Repeat(`,"x"`, 1000) + `]}`, "POST /files/replace?": `{"path":"x","replacements":[{}` + strings.Repeat(`,{}`, 100) + `]}`,
		"POST /files/mkdir": `{"path":"a\u0000b"}`, "GET /files/glob?pattern=x&max_results=501": "",
		"GET /files/search?limit=101": "", "GET /files/search?type=y": "", "GET /files/matches": "", "GET /files/matches?query=+": "", "GET /files/matches?query=x&offset=-1": "", "GET /files/view?path=x&preview=perhaps": "",
	} {
		method, path, _ := strings.Cut(route, " ")
		if status, _, text := u.do(method, path, "application/json", body); status != 400 || !strings.HasPrefix(text, `{"detail":"`) {
			t.Errorf("%s: %d %s", route, status, text)
		}
	}
	for name, body := range map[string]string{"10 MB": `{"command":"` + strings.Repeat("x", 10<<20) + `"}`, "no JSON": "{", "deep": strings.Repeat("[", 1<<20), "unknown": `{"command":"true","shell":"zsh"}`} {
		if status, _, text := u.do("POST", "/execute", "application/json", body); status != 400 && status != 413 && status != 501 || len(text) > 2000 {
			t.Errorf("%s: %d %.300s", name, status, text)
		}
	}
	if status, head, text := u.do("POST", "/files/archive", "application/json", `{"paths":["none"]}`); status != http.StatusNotFound || head.Get("Content-Disposition") != "" {
		t.Errorf("an archive of nothing: %d %v %s", status, head, text)
	}
	if status, _, text := u.do("DELETE", "/execute/x?force=perhaps", "", ""); status != 400 || !strings.Contains(text, "force") {
		t.Errorf("a flag that is not true or false: %d %s", status, text)
	}
	if status, _, text := u.do("GET", "/files/list?directory=.&depth=null", "", ""); status != 200 {
		t.Errorf("an unknown parameter that is null: %d %s", status, text)
	}
	if status, _, text := u.do("POST", "/files/upload?directory=x", "multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"mode\"\r\n\r\n0755\r\n--B--\r\n"); status != 501 || !strings.Contains(text, "mode") {
		t.Errorf("an upload with an unknown field: %d %s", status, text)
	}
	for _, route := range []string{"GET /info", "POST /files/compare"} {
		method, path, _ := strings.Cut(route, " ")
		if status, _, text := u.do(method, path, "", ""); status != http.StatusNotImplemented {
			t.Errorf("%s: %d %s", route, status, text)
		}
	}
	long := user{u.bench, strings.Repeat("u", 600), ""}
	if status, _, text := long.do("GET", "/files/list", "", ""); status != 400 {
		t.Errorf("a long user: %d %s", status, text)
	}
}

package interpreter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/fakeengine"
)

// server starts a server for one sandbox of svc.
func server(t *testing.T, svc hutch.Service, opt Options) (url string) {
	t.Helper()
	sb, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "box"})
	if err != nil {
		t.Fatal(err)
	}
	h := New(opt)
	t.Cleanup(h.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := seam.Target{Sandbox: sb.ID, Service: svc, Record: sb, Verified: true}
		h.ServeHTTP(w, r.WithContext(seam.With(r.Context(), target)))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func request(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

type line = map[string]any

// execute runs code, and returns the lines of each type.
func execute(t *testing.T, url string, message any) map[string][]line {
	t.Helper()
	b, _ := json.Marshal(message)
	status, body := request(t, http.MethodPost, url+"/execute", string(b))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	lines := map[string][]line{}
	last := ""
	for text := range strings.Lines(body) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		last, _ = l["type"].(string)
		lines[last] = append(lines[last], l)
	}
	if last != "end_of_execution" {
		t.Errorf("the last line is %q", last)
	}
	return lines
}

func TestExecute(t *testing.T) {
	url := server(t, fakeengine.Start(t), Options{})
	got := execute(t, url, line{"code": "import os, sys\nx = 1\nprint('é')\nprint('e', file=sys.stderr)\nos.environ['A']", "env_vars": line{"A": "b"}})
	if out := got["stdout"]; len(out) == 0 || out[0]["text"] != "é\n" {
		t.Errorf("stdout %v", out)
	}
	if out := got["stderr"]; len(out) == 0 || out[0]["text"] != "e\n" {
		t.Errorf("stderr %v", out)
	}
	if r := got["result"]; len(r) != 1 || r[0]["text"] != "b" || r[0]["is_main_result"] != true {
		t.Errorf("result %v", r)
	}
	if n := got["number_of_executions"]; len(n) != 1 || n[0]["execution_count"] != 1.0 {
		t.Errorf("count %v", n)
	}
	got = execute(t, url, line{"code": "x + 1, os.environ.get('A')", "language": "python", "context_id": nil})
	if r := got["result"]; len(r) != 1 || r[0]["text"] != "(2, None)" {
		t.Errorf("the state of the default context, or the environment of one run: %v", r)
	}
	got = execute(t, url, line{"code": "nothing"})
	if e := got["error"]; len(e) != 1 || e[0]["name"] != "NameError" || e[0]["value"] != "name 'nothing' is not defined" || !strings.Contains(fmt.Sprint(e[0]["traceback"]), "NameError") {
		t.Errorf("error %v", e)
	}
	if out := execute(t, url, line{"code": "echo $((6*7))", "language": "bash"})["stdout"]; len(out) != 1 || out[0]["text"] != "42\n" {
		t.Errorf("bash %v", out)
	}
	if r := execute(t, url, line{"code": "const n: number = 6; `${n * 7}`", "language": "TS"})["result"]; len(r) != 1 || r[0]["text"] != "42" {
		t.Errorf("TypeScript %v", r)
	}
}

func TestContexts(t *testing.T) {
	url := server(t, fakeengine.Start(t), Options{})
	list := func() (all []codeContext) {
		t.Helper()
		_, body := request(t, http.MethodGet, url+"/contexts", "")
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return all
	}
	if all := list(); len(all) != 2 || all[0].Language != "python" || all[1].Language != "javascript" {
		t.Errorf("at first there are %v", all)
	}
	dir := t.TempDir()
	_, body := request(t, http.MethodPost, url+"/contexts", `{"language": "py`+`thon", "cwd": "`+dir+`"}`)
	var c codeContext
	json.Unmarshal([]byte(body), &c)
	if all := list(); len(all) != 3 || all[2] != c || c.Language != "python" || c.Dir != dir {
		t.Fatalf("%s: %v", body, all)
	}
	execute(t, url, line{"code": "x = 1", "context_id": c.ID})
	if status, body := request(t, http.MethodPost, url+"/contexts/"+c.ID+"/restart", ""); status != 200 {
		t.Fatalf("restart: %d %s", status, body)
	}
	if e := execute(t, url, line{"code": "x", "context_id": c.ID})["error"]; len(e) != 1 || e[0]["name"] != "NameError" {
		t.Errorf("after the restart: %v", e)
	}
	if out := execute(t, url, line{"code": "import os; print(os.getcwd())", "context_id": c.ID})["stdout"]; len(out) != 1 || out[0]["text"] != dir+"\n" {
		t.Errorf("after the restart it is in %v", out)
	}
	if status, body := request(t, http.MethodDelete, url+"/contexts/"+c.ID, ""); status != 200 || len(list()) != 2 {
		t.Errorf("delete: %d %s", status, body)
	}
	for method, path := range map[string]string{http.MethodDelete: "/contexts/nope", http.MethodPost: "/contexts/nope/restart"} {
		if status, body := request(t, method, url+path, ""); status != 404 || body != "Context nope not found" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestRefusals(t *testing.T) {
	url := server(t, &fakeservice.Service{}, Options{})
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/execute", `{"code": "1", "context_id": "nope"}`, 404},
		{"/execute", `{"code": "1", "context_id": "a", "language": "python"}`, 400},
		{"/execute", `{"code": "1", "language": "r"}`, 501},
		{"/execute", `{"code": "1", "silent": true}`, 501},
		{"/execute", `{"code": 1}`, 422},
		{"/execute", `{"code": "1"} {}`, 422},
		{"/execute", `[`, 422},
		{"/execute", strings.Repeat(" ", maxBody+1), 413},
		{"/contexts", `{"language": "java"}`, 501},
		{"/nothing", `{}`, 404},
	} {
		if status, body := request(t, http.MethodPost, url+c.path, c.body); status != c.status || body == "" {
			t.Errorf("%s %.60s: %d %s", c.path, c.body, status, body)
		}
	}
}

// When its client disconnects, a run is interrupted, and the next run does not wait for it.
func TestClientThatLeaves(t *testing.T) {
	url := server(t, fakeengine.Start(t), Options{Keepalive: 50 * time.Millisecond})
	execute(t, url, line{"code": "x = 1"})
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/execute", strings.NewReader(`{"code": "import time\ntime.sleep(300)"}`))
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := bufio.NewReader(resp.Body).ReadString('\n'); !strings.Contains(first, "keepalive") {
		t.Errorf("while nothing happens: %q, %v", first, err)
	}
	cancel()
	resp.Body.Close()
	if r := execute(t, url, line{"code": "x + 1"})["result"]; len(r) != 1 || r[0]["text"] != "2" {
		t.Errorf("the next run: %v", r)
	}
}

func TestInterpreterThatEnds(t *testing.T) {
	url := server(t, fakeengine.Start(t), Options{})
	got := execute(t, url, line{"code": "import os; os._exit(3)"})
	if e := got["error"]; len(e) != 1 || e[0]["name"] != "UnexpectedEndOfExecution" {
		t.Errorf("%v", got)
	}
}

func TestResultLine(t *testing.T) {
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	got, err := json.Marshal(resultLine(hutch.CodeResult{Main: true, Data: map[string]json.RawMessage{
		"text/plain": raw(`"'it'"`), "text/html": raw(`"<b>"`), "image/png": raw(`"aGk="`), "application/json": raw(`{"a":1}`),
		chartType: raw(`{"type":"line"}`), tableType: raw(`{"columns":["b","a"],"rows":[[1,"x"],[2,"y"]],"total":2}`), "text/custom": raw(`"c"`),
	}}))
	want := `{"chart":{"type":"line"},"data":{"b":[1,2],"a":["x","y"]},"extra":{"text/custom":"c"},"html":"\u003cb\u003e","is_main_result":true,"json":{"a":1},"png":"aGk=","text":"it","type":"result"}`
	if string(got) != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// Characters that arrive in pieces are put together, and bytes that are not characters are replaced.
func TestCutCharacters(t *testing.T) {
	w := httptest.NewRecorder()
	l := &lines{w: w}
	for _, piece := range []string{"a\xe2", "\x82", "\xac", "\xff b", "\xf0\x9f"} {
		if err := l.output(hutch.Stdout, []byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	l.end(hutch.RunResult{}, nil)
	var texts []string
	for text := range strings.Lines(w.Body.String()) {
		var v line
		json.Unmarshal([]byte(text), &v)
		if v["type"] == "stdout" {
			texts = append(texts, v["text"].(string))
		}
	}
	if got := strings.Join(texts, "|"); got != "a|€|\uFFFD b|\uFFFD" {
		t.Errorf("%q", got)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"code": "1", "language": "js", "env_vars": {"A": "b"}}`), "'a'", `{"columns": ["a"], "rows": [[1]]}`)
	f.Fuzz(func(t *testing.T, body []byte, text, table string) {
		var q executeRequest
		if status, message := decode(body, &q); status != 0 && message == "" {
			t.Error("a refusal without words")
		}
		plain, _ := json.Marshal(text)
		data := map[string]json.RawMessage{"text/plain": plain}
		if json.Valid([]byte(table)) {
			data[tableType] = json.RawMessage(table)
		}
		if _, err := json.Marshal(resultLine(hutch.CodeResult{Data: data})); err != nil {
			t.Errorf("%q %q: %v", text, table, err)
		}
	})
}

package openterminal_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"hutch/internal/hutchtest/fakeengine"
)

type ran struct {
	Status  string
	Count   *int `json:"execution_count"`
	Outputs []struct {
		Type   string `json:"output_type"`
		Name   string
		Text   string
		Data   map[string]any
		EName  string
		EValue string
		Trace  []string `json:"traceback"`
		Count  *int     `json:"execution_count"`
	}
}

const example = `{"cells":[
 {"cell_type":"markdown","metadata":{},"source":["# Title"]},
 {"cell_type":"code","id":"c1","metadata":{"tags":["keep"]},"execution_count":null,"outputs":[],"source":["import sys\n","x = 20\n","print('out'); print('err', file=sys.stderr)\n","x + 1"]},
 {"cell_type":"code","id":"c2","metadata":{},"execution_count":null,"outputs":[],"source":"print(x); raise ValueError('no')"}
],"metadata":{"kernelspec":{"name":"python3","display_name":"Python 3"},"theirs":{"a":1.50}},"nbformat":4,"nbformat_minor":5}`

// open opens a notebook that has a content, and returns the session.
func (u user) open(name, content string) string {
	u.t.Helper()
	u.ask("POST /files/write", nil, fields{"path": name, "content": content})
	var s struct{ ID, Kernel, Status string }
	u.ask("POST /notebooks", &s, fields{"path": name})
	if s.ID == "" || s.Status != "ready" {
		u.t.Fatalf("%+v", s)
	}
	return s.ID
}

func TestNotebook(t *testing.T) {
	t.Parallel()
	u := user{serve(t, fakeengine.Start(t)), "ann", "chat"}
	id := u.open("a b.ipynb", example)
	var status struct{ ID, Path, Kernel, Status string }
	u.ask("GET /notebooks/"+id, &status, nil)
	if status.ID != id || !strings.HasSuffix(status.Path, "/a b.ipynb") || status.Kernel != "python3" || status.Status != "ready" {
		t.Errorf("%+v", status)
	}
	var r ran
	u.ask("POST /notebooks/"+id+"/execute", &r, fields{"cell_index": 1})
	if r.Status != "ok" || r.Count == nil || *r.Count != 1 || len(r.Outputs) != 3 {
		t.Fatalf("%+v", r)
	}
	for _, o := range r.Outputs[:2] {
		if want := map[string]string{"stdout": "out\n", "stderr": "err\n"}[o.Name]; o.Type != "stream" || want == "" || o.Text != want {
			t.Errorf("%+v", o)
		}
	}
	if o := r.Outputs[2]; o.Type != "execute_result" || o.Data["text/plain"] != "21" || o.Count == nil || *o.Count != 1 {
		t.Errorf("%+v", o)
	}
	r = ran{}
	u.ask("POST /notebooks/"+id+"/execute", &r, fields{"cell_index": 2}) // the state is kept
	if len(r.Outputs) != 2 || r.Status != "error" || r.Outputs[0].Text != "20\n" || r.Outputs[1].EName != "ValueError" || r.Outputs[1].EValue != "no" || len(r.Outputs[1].Trace) == 0 {
		t.Errorf("%+v", r)
	}
	r = ran{}
	u.ask("POST /notebooks/"+id+"/execute", &r, fields{"cell_index": 2, "source": "x * 2"})
	if r.Status != "ok" || len(r.Outputs) != 1 || r.Outputs[0].Data["text/plain"] != "40" {
		t.Errorf("%+v", r)
	}
	r = ran{}
	u.ask("POST /notebooks/"+id+"/execute", &r, fields{"cell_index": 0})
	if r.Status != "ok" || r.Count != nil || len(r.Outputs) != 0 {
		t.Errorf("a text: %+v", r)
	}

	// The file has the cells that ran, and its other cells unchanged.
	var saved struct {
		Cells []struct {
			ID       string
			Source   any
			Metadata map[string]any
			Count    *int `json:"execution_count"`
			Outputs  []any
		}
		Metadata json.RawMessage
	}
	text := u.ask("GET /files/view", nil, fields{"path": "a b.ipynb"})
	if err := json.Unmarshal([]byte(text), &saved); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if c := saved.Cells[1]; c.ID != "c1" || c.Metadata["tags"] == nil || *c.Count != 1 || len(c.Outputs) != 3 || !strings.Contains(string(saved.Metadata), "1.50") {
		t.Errorf("%s", text)
	}
	if c := saved.Cells[2]; c.Source != "x * 2" || len(c.Outputs) != 1 {
		t.Errorf("%s", text)
	}

	u.ask("DELETE /notebooks/"+id, nil, nil)
	for _, path := range []string{"GET /notebooks/" + id, "DELETE /notebooks/" + id, "POST /notebooks/" + id + "/execute"} {
		method, path, _ := strings.Cut(path, " ")
		if status, _, text := u.do(method, path, "application/json", `{"cell_index":1}`); status != http.StatusNotFound {
			t.Errorf("%s of a session that has ended: %d %s", method, status, text)
		}
	}
}

// A notebook is written by programs in the sandbox, and a session is named by the client: both can be anything.
func TestHostileNotebooks(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t))
	u, other := user{b, "ann", "chat"}, user{b, "bob", "chat"}
	for content, want := range map[string]int{
		``: 400, `[]`: 400, `{"nbformat":3,"cells":[]}`: 400, `{"nbformat":4,"cells":{}}`: 400, `{"nbformat":4,"cells":[` + strings.Repeat(`[`, 20_000): 400,
		`{"nbformat":4,"metadata":{"kernelspec":{"name":"../../bin/sh"}}}`: 400,
		`{"nbformat":4,"metadata":7}`:                                      200, `{"nbformat":4,"cells":[7,null]}`: 200,
	} {
		u.ask("POST /files/write", nil, fields{"path": "x.ipynb", "content": content})
		if status, _, text := u.do("POST", "/notebooks", "application/json", `{"path":"x.ipynb"}`); status != want {
			t.Errorf("%.60s: %d %s", content, status, text)
		}
	}
	if status, _, text := u.do("POST", "/notebooks", "application/json", `{"path":"none.ipynb"}`); status != 404 || !strings.Contains(text, "Notebook not found") {
		t.Errorf("%d %s", status, text)
	}
	id := u.open("x.ipynb", `{"nbformat":4,"cells":[7,{"cell_type":"code"},{"cell_type":"code","source":"print('x' * 10_000_000)"}]}`)
	for body, want := range map[string]int{`{"cell_index":0}`: 400, `{"cell_index":3}`: 400, `{"cell_index":-1}`: 400, `{}`: 400, `{"cell_index":1}`: 200} {
		if status, _, text := u.do("POST", "/notebooks/"+id+"/execute", "application/json", body); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	var r ran
	u.ask("POST /notebooks/"+id+"/execute", &r, fields{"cell_index": 2})
	if size := len(r.Outputs[0].Text); size > 4<<20 || !strings.Contains(r.Outputs[len(r.Outputs)-1].Text, "more output") {
		t.Errorf("%d bytes", size)
	}
	ctx, _, _ := strings.Cut(id, ".")
	for _, id := range []string{"x", ctx, ctx + ".", ctx + ".!!", ctx + "._w", "default-python.L2E"} {
		if status, _, text := u.do("GET", "/notebooks/"+id, "", ""); status != 404 {
			t.Errorf("%s: %d %s", id, status, text)
		}
	}
	if status, _, text := other.do("GET", "/notebooks/"+id, "", ""); status != 404 {
		t.Errorf("another user: %d %s", status, text)
	}
}

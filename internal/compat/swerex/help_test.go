package swerex_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/compat/swerex"
)

// bench is a server, and the sandbox that its requests are about.
type bench struct {
	*httptest.Server
	t   *testing.T
	box string
}

func serve(t *testing.T, svc hutch.Service, opt swerex.Options) *bench {
	t.Helper()
	h := swerex.NewHandler(svc, opt)
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return &bench{srv, t, "box"}
}

type answer struct {
	status int
	body   string
}

// field returns a field of an answer.
func (a answer) field(name string) any {
	var all map[string]any
	json.Unmarshal([]byte(a.body), &all) // a wrong answer has no field
	return all[name]
}

// exception returns the class and the message of the exception that a client raises.
func (a answer) exception() (class, message string) {
	var e struct {
		Exception struct {
			Class   string `json:"class_path"`
			Message string `json:"message"`
		} `json:"swerexception"`
	}
	json.Unmarshal([]byte(a.body), &e) // a wrong answer has none
	return e.Exception.Class[strings.LastIndexByte(e.Exception.Class, '.')+1:], e.Exception.Message
}

func (b *bench) post(route, kind string, body io.Reader) answer {
	b.t.Helper()
	method := http.MethodPost
	if route == "is_alive" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+"/swerex/"+b.box+"/"+route, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, string(got)}
}

func (b *bench) ask(route, body string) answer {
	b.t.Helper()
	return b.post(route, "application/json", strings.NewReader(body))
}

// want sends a request, and fails the test unless the answer has status 200.
func (b *bench) want(route string, body any) answer {
	b.t.Helper()
	a := b.ask(route, encode(b.t, body))
	if a.status != http.StatusOK {
		b.t.Fatalf("%s %v: %d %s", route, body, a.status, a.body)
	}
	return a
}

// raises sends a request, fails the test unless the answer is an exception of the class, and returns its message.
func (b *bench) raises(class, route string, body any) string {
	b.t.Helper()
	a := b.ask(route, encode(b.t, body))
	got, message := a.exception()
	if a.status != http.StatusNetworkAuthenticationRequired || got != class || message == "" {
		b.t.Errorf("%s %v: %d %.300s; want %s", route, body, a.status, a.body, class)
	}
	return message
}

func encode(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// fields are the fields of a request.
type fields = map[string]any

// run runs a command in a session.
func (b *bench) run(command string, more ...any) answer {
	b.t.Helper()
	return b.want("run_in_session", action(command, more...))
}

func action(command string, more ...any) fields {
	f := fields{"action_type": "bash", "command": command, "timeout": 20}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	return f
}

// upload sends a form as the client does: the file first.
func (b *bench) upload(content string, pairs ...string) answer {
	b.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("file", "name")
	if err != nil {
		b.t.Fatal(err)
	}
	io.WriteString(part, content)
	for i := 0; i < len(pairs); i += 2 {
		if err := w.WriteField(pairs[i], pairs[i+1]); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.t.Fatal(err)
	}
	return b.post("upload", w.FormDataContentType(), &body)
}

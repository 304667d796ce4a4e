package jupyter_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/compat/jupyter"
)

// testServer is a server, and the user that its requests name.
type testServer struct {
	*httptest.Server
	t    *testing.T
	user string
}

func serve(t *testing.T, svc hutch.Service, opt jupyter.Options) *testServer {
	t.Helper()
	h := jupyter.NewHandler(svc, opt)
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		h.Close()
		srv.Close()
	})
	return &testServer{Server: srv, t: t}
}

type object = map[string]any

// ask sends a request, and decodes its answer if v is not nil.
func (d *testServer) ask(method, path, body string, v any) (status int) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.URL+"/jupyter/api/"+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if d.user != "" {
		req.Header.Set("X-User-Id", d.user)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if v != nil && json.Unmarshal(b, v) != nil {
		d.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	return resp.StatusCode
}

// want does the same as ask, and fails the test unless the answer has the status.
func (d *testServer) want(status int, method, path, body string) (answer object) {
	d.t.Helper()
	var v any = &answer
	if status == http.StatusNoContent {
		v = nil
	}
	if got := d.ask(method, path, body, v); got != status {
		d.t.Fatalf("%s %s: %d %v, want %d", method, path, got, answer, status)
	}
	return answer
}

// start starts a kernel.
func (d *testServer) start(body string) (id string) {
	d.t.Helper()
	id, _ = d.want(http.StatusCreated, "POST", "kernels", body)["id"].(string)
	return id
}

// line is a connection to a kernel.
type line struct {
	*websocket.Conn
	t *testing.T
}

func (d *testServer) dial(kernel string, protocols ...string) *line {
	d.t.Helper()
	conn, _, err := websocket.Dial(d.t.Context(), d.URL+"/jupyter/api/kernels/"+kernel+"/channels", &websocket.DialOptions{Subprotocols: protocols})
	if err != nil {
		d.t.Fatal(err)
	}
	conn.SetReadLimit(16 << 20)
	d.t.Cleanup(func() { conn.CloseNow() })
	return &line{conn, d.t}
}

type received struct {
	Channel string                   `json:"channel"`
	Type    string                   `json:"msg_type"`
	Header  struct{ Session string } `json:"header"`
	Parent  struct {
		ID string `json:"msg_id"`
	} `json:"parent_header"`
	Content object `json:"content"`
}

func request(id, channel, typ string, content any) []byte {
	b, err := json.Marshal(object{
		"header":        object{"msg_id": id, "msg_type": typ, "session": "s", "username": "u", "date": "", "version": "5.3"},
		"parent_header": object{}, "metadata": object{}, "content": content, "channel": channel,
	})
	if err != nil {
		panic(err)
	}
	return b
}

func (l *line) send(id, channel, typ string, content any) {
	l.t.Helper()
	if err := l.Write(l.t.Context(), websocket.MessageText, request(id, channel, typ, content)); err != nil {
		l.t.Fatal(err)
	}
}

// next returns the next message.
func (l *line) next() received {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
	defer cancel()
	_, b, err := l.Read(ctx)
	if err != nil {
		l.t.Fatalf("no message: %v", err)
	}
	var m received
	if err := json.Unmarshal(b, &m); err != nil {
		l.t.Fatalf("%q: %v", b, err)
	}
	return m
}

// until returns the messages about a request, up to the first of a type. For the type status, it must have the state.
func (l *line) until(id, typ, state string) (all []received) {
	l.t.Helper()
	for {
		m := l.next()
		if m.Parent.ID != id {
			continue
		}
		all = append(all, m)
		if m.Type == typ && (state == "" || m.Content["execution_state"] == state) {
			return all
		}
	}
}

// run runs code as Open WebUI does, and returns the messages until the kernel is idle.
func (l *line) run(id, code string, more ...any) []received {
	l.t.Helper()
	content := object{"code": code, "silent": false, "store_history": true, "user_expressions": object{}, "allow_stdin": false, "stop_on_error": true}
	for i := 0; i < len(more); i += 2 {
		content[more[i].(string)] = more[i+1]
	}
	l.send(id, "shell", "execute_request", content)
	return l.until(id, "status", "idle")
}

// types lists the types of messages. For a message with a state of the kernel, it lists the state.
func types(all []received) string {
	var list []string
	for _, m := range all {
		name := m.Type
		if state, ok := m.Content["execution_state"].(string); ok {
			name = state
		}
		list = append(list, name)
	}
	return strings.Join(list, " ")
}

// of returns the content of the first message of a type.
func of(all []received, typ string) object {
	for _, m := range all {
		if m.Type == typ {
			return m.Content
		}
	}
	return object{}
}

// text returns what the code printed on a stream.
func text(all []received, stream string) (s string) {
	for _, m := range all {
		if m.Type == "stream" && m.Content["name"] == stream {
			s += m.Content["text"].(string)
		}
	}
	return s
}

// plain returns the text of a shown value.
func plain(content object) string {
	data, _ := content["data"].(object)
	s, _ := data["text/plain"].(string)
	return s
}

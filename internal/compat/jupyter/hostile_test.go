package jupyter_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/compat/jupyter"
	"hutch/internal/hutchtest/fakeengine"
)

// An invalid message ends the connection with a reason, and the kernel and its other clients continue.
func TestUnreadableMessages(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	id := d.start("")
	other := d.dial(id)
	for name, c := range map[string]struct {
		typ    websocket.MessageType
		b      string
		status websocket.StatusCode
		reason string
	}{
		"no JSON":     {websocket.MessageText, "hello", websocket.StatusInvalidFramePayloadData, "not an object in JSON"},
		"iopub":       {websocket.MessageText, string(request("x", "iopub", "stream", object{})), websocket.StatusInvalidFramePayloadData, `the channel "iopub"`},
		"no header":   {websocket.MessageText, `{"channel":"shell"}`, websocket.StatusInvalidFramePayloadData, "no header"},
		"binary":      {websocket.MessageBinary, "\xff\xff\xff\xff\xff\xff\xff\xff", websocket.StatusInvalidFramePayloadData, "cannot have"},
		"much":        {websocket.MessageText, string(request("x", "shell", "execute_request", object{"code": strings.Repeat("#", 5<<20)})), websocket.StatusMessageTooBig, ""},
		"long header": {websocket.MessageText, string(request(strings.Repeat("x", 5000), "shell", "execute_request", object{})), websocket.StatusInvalidFramePayloadData, "at most"},
	} {
		l := d.dial(id)
		l.Write(t.Context(), c.typ, []byte(c.b)) // can fail once the server has seen enough
		var err error
		for err == nil {
			_, _, err = l.Read(t.Context())
		}
		closed, _ := errors.AsType[websocket.CloseError](err)
		if closed.Code != c.status || !strings.Contains(closed.Reason, c.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := other.run("r", "6*7"); plain(of(got, "execute_result")) != "42" {
		t.Errorf("%v", got)
	}
}

func TestWrongRequests(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	id := d.start("")
	for _, wrong := range []string{"x", "00000000-0000-0000-0000-000000000000", strings.ToUpper(id), id + "x", strings.Replace(id, "-", "", 1)} {
		d.want(http.StatusNotFound, "GET", "kernels/"+wrong, "")
		d.want(http.StatusNotFound, "GET", "kernels/"+wrong+"/channels", "")
		d.want(http.StatusNotFound, "POST", "kernels/"+wrong+"/restart", "")
	}
	d.want(http.StatusBadRequest, "GET", "kernels/"+id+"/channels", "")
	d.want(http.StatusBadRequest, "POST", "kernels", "{")
	d.want(http.StatusBadRequest, "POST", "kernels", `{"env":{"A=B":"c"}}`)
	d.want(http.StatusBadRequest, "POST", "sessions", `{"name":"no path"}`)
	d.want(http.StatusNotFound, "POST", "sessions", `{"path":"p","kernel":{"id":"00000000-0000-0000-0000-000000000000"}}`)
	d.want(http.StatusNotFound, "GET", "contents", "")
	long := *d
	long.user = strings.Repeat("u", 300)
	long.want(http.StatusBadRequest, "GET", "kernels", "")

	l := d.dial(id)
	for _, content := range []any{"text", 7, object{"code": 7}, nil} {
		l.send("r", "shell", "execute_request", content)
		l.until("r", "status", "idle")
	}
	l.send("r", "shell", "execute_request", object{"code": strings.Repeat("#", 2<<20)})
	if c := of(l.until("r", "status", "idle"), "execute_reply"); c["status"] != "error" || !strings.Contains(fmt.Sprint(c["evalue"]), "limit") {
		t.Errorf("%v", c)
	}
	if got := l.run("after", "6*7"); plain(of(got, "execute_result")) != "42" {
		t.Errorf("%v", got)
	}
}

// A kernel takes a bounded number of requests, and refuses more in words.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	id := d.start("")
	l := d.dial(id)
	l.send("first", "shell", "execute_request", object{"code": "import time; time.sleep(60)"})
	for i := range 300 {
		l.send(fmt.Sprint("r", i), "shell", "execute_request", object{"code": "1"})
	}
	refused := of(l.until("r299", "status", "idle"), "execute_reply")
	if refused["status"] != "error" || !strings.Contains(fmt.Sprint(refused["evalue"]), "at most 256") {
		t.Errorf("%v", refused)
	}
	d.want(http.StatusNoContent, "POST", "kernels/"+id+"/interrupt", "")
}

// Short requests that need much time or memory are bounded.
func TestGreedyQuestions(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	l := d.dial(d.start(`{"name":"bash"}`))
	refused := func(what string, c object) {
		t.Helper()
		if c["status"] != "error" || !strings.Contains(fmt.Sprint(c["evalue"]), "at most") {
			t.Errorf("%s: %.200v", what, c)
		}
	}
	l.run("long", "#"+strings.Repeat("a", 100<<10))
	l.send("h", "shell", "history_request", object{"hist_access_type": "search", "pattern": "*" + strings.Repeat("a", 50<<10) + "b"})
	refused("a long pattern", of(l.until("h", "status", "idle"), "history_reply"))
	many := object{}
	for i := range 10000 {
		many[fmt.Sprint(i)] = "1"
	}
	refused("many expressions", of(l.run("e", "true", "user_expressions", many), "execute_reply"))
	got := of(l.run("e", "true", "user_expressions", object{"a": "1"}), "execute_reply")
	if a, _ := got["user_expressions"].(object)["a"].(object); a["status"] != "error" {
		t.Errorf("%v", got)
	}
	l.send("c", "shell", "\a\v\u007f\u200b\U000e0001_request", object{}) // Go and JSON escape these characters differently
	l.until("c", "status", "idle")
}

// A client that reads nothing is disconnected, and then delays neither the program nor the other client.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{Stall: 3 * time.Second})
	id := d.start("")
	d.dial(id) // and never reads
	l := d.dial(id)
	got := l.run("r", "for i in range(400): print('x' * 50000)")
	if n := len(text(got, "stdout")); n != 400*50001 {
		t.Errorf("%d bytes", n)
	}
	if k := d.want(http.StatusOK, "GET", "kernels/"+id, ""); k["connections"] != 1.0 {
		t.Errorf("%v", k)
	}
}

// Code that forges the interpreter's answers changes only what its own client sees.
func TestForgedAnswers(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	l := d.dial(d.start(""))
	l.run("forge", `import hutch_notebook
hutch_notebook.answer = 7
hutch_notebook.complete = lambda a: display({"application/vnd.hutch.notebook+json": [1], "text/plain": ""}, raw=True)
hutch_notebook.inspect = None
display({"application/vnd.hutch.display+json": 7, "text/plain": "x"}, raw=True)
display({"application/vnd.hutch.display+json": {"id": [1], "clear": "yes"}, "text/plain": "x"}, raw=True)`)
	l.send("c", "shell", "complete_request", object{"code": "x", "cursor_pos": 1})
	if c := of(l.until("c", "status", "idle"), "complete_reply"); c["status"] != "ok" || len(c["matches"].([]any)) != 0 {
		t.Errorf("%v", c)
	}
	l.send("i", "shell", "inspect_request", object{"code": "x", "cursor_pos": 1})
	if c := of(l.until("i", "status", "idle"), "inspect_reply"); c["found"] != false {
		t.Errorf("%v", c)
	}
}

// gone is a service whose sandboxes are gone.
type gone struct{ hutch.Service }

func (g gone) RunCode(ctx context.Context, sandbox string, _ hutch.RunRequest, _ func(hutch.RunEvent) error) (hutch.RunResult, error) {
	return hutch.RunResult{}, hutch.Errorf(hutch.NotFound, "there is no sandbox %q", sandbox).Naming(hutch.AboutSandbox, sandbox)
}

// If the sandbox of a kernel is destroyed by other means, the kernel's clients are informed.
func TestSandboxIsGone(t *testing.T) {
	t.Parallel()
	d := serve(t, gone{fakeengine.Start(t)}, jupyter.Options{})
	l := d.dial(d.start(""))
	l.send("r", "shell", "execute_request", object{"code": "1"})
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, b, err := l.Read(ctx)
		cancel()
		if err != nil {
			t.Fatal("the connection ended before the kernel was said to be dead")
		}
		if strings.Contains(string(b), `"dead"`) {
			return
		}
	}
}

// Pages of other sites cannot connect.
func TestOrigin(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{Origins: []string{"https://app.example"}})
	id := d.start("")
	for origin, want := range map[string]int{"https://evil.example": http.StatusForbidden, "https://app.example": http.StatusSwitchingProtocols} {
		conn, resp, _ := websocket.Dial(t.Context(), d.URL+"/jupyter/api/kernels/"+id+"/channels", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if conn != nil {
			conn.CloseNow()
		}
		if resp == nil || resp.StatusCode != want {
			t.Errorf("%s: %v", origin, resp)
		}
	}
}

package servicetest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/client"
	"hutch/internal/rest"
)

// flaky relays connections to a server, and breaks each after some bytes of its
// answers.
func flaky(t *testing.T, server string, after int64) (address string, broken func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	breaks := 0
	var tasks sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		up, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer up.Close()
		tasks.Go(func() { io.Copy(up, c); up.Close() })
		if n, _ := io.CopyN(c, up, after); n == after {
			mu.Lock()
			breaks++
			mu.Unlock()
		}
	}
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); tasks.Wait() })
	return "http://" + l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return breaks }
}

// A resumable command is read to its end over connections that break, without a
// gap and without repetition.
func TestResumableSurvivesItsConnections(t *testing.T) {
	t.Parallel()
	h := rest.NewHandler(newEngine(t), rest.Options{})
	srv := httptest.NewServer(h)
	defer func() { h.Close(); srv.Close() }()
	address, broken := flaky(t, srv.Listener.Addr().String(), 20_000)
	c := client.New(address, "")
	defer c.Close()
	box, err := c.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var cursor int64
	res, err := c.Exec(t.Context(), box.ID, hutch.ExecRequest{Command: "for i in $(seq 20); do seq $((i*1000)) $((i*1000+999)); sleep 0.05; done; exit 4", Resumable: true, MaxOutput: 1000}, func(o hutch.Output) error {
		if o.Lost != 0 || o.Cursor-int64(len(o.Data)) != cursor {
			t.Errorf("after %d: %d bytes to %d, %d lost", cursor, len(o.Data), o.Cursor, o.Lost)
		}
		cursor = o.Cursor
		got.Write(o.Data)
		return nil
	})
	if err != nil || res.ExitCode != 4 || res.Duration > time.Minute {
		t.Fatalf("%+v, %v", res, err)
	}
	lines := bytes.Split(bytes.TrimSpace(got.Bytes()), []byte("\n"))
	if len(lines) != 20_000 || string(lines[19_999]) != "20999" {
		t.Errorf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
	if broken() < 2 {
		t.Errorf("the connection broke %d times", broken())
	}
}

// overREST returns a server with one sandbox, and the URL for running commands in it.
func overREST(t *testing.T) (svc hutch.Service, id, url string) {
	t.Helper()
	svc = newEngine(t)
	h := rest.NewHandler(svc, rest.Options{})
	srv := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); srv.Close() })
	box, err := svc.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return svc, box.ID, srv.URL + "/v1/sandboxes/" + box.ID + "/exec"
}

// A browser's EventSource that reconnects sends the id of the last event it saw.
func TestResumableByLastEventID(t *testing.T) {
	t.Parallel()
	_, _, url := overREST(t)
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(`{"command": "echo hello; while ! [ -e go ]; do sleep 0.05; done; echo done", "resumable": true}`))
	if err != nil {
		t.Fatal(err)
	}
	exec, last := "", ""
	for line := range eventsOf(t, req) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && exec == "" {
			var first struct{ ExecID string }
			if err := json.Unmarshal([]byte(data), &first); err != nil || first.ExecID == "" {
				t.Fatalf("the first event: %s, %v", data, err)
			}
			exec = first.ExecID
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok && id != "0" {
			last = id
			break // the connection is lost
		}
	}
	if last != "6" {
		t.Fatalf("the id behind hello is %q", last)
	}
	if res, err := http.Post(url, "application/json", strings.NewReader(`{"command": "touch go"}`)); err != nil {
		t.Fatal(err)
	} else {
		res.Body.Close()
	}
	if req, err = http.NewRequestWithContext(t.Context(), "GET", url+"/"+exec, nil); err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", last)
	var rest []string
	for line := range eventsOf(t, req) {
		if strings.HasPrefix(line, "data: ") {
			rest = append(rest, line)
		}
	}
	if len(rest) != 2 || !strings.Contains(rest[0], `"data":"done\n"`) || !strings.Contains(rest[1], `"exitCode":0`) {
		t.Errorf("after the reconnect: %q", rest)
	}
}

// eventsOf iterates over the lines of a stream of events.
func eventsOf(t *testing.T, req *http.Request) func(yield func(string) bool) {
	t.Helper()
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", req.Method, req.URL, res.Status)
	}
	return func(yield func(string) bool) {
		defer res.Body.Close()
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if !yield(lines.Text()) {
				return
			}
		}
	}
}

// A command that outlives its connection can also be cancelled over a WebSocket.
func TestResumableIsCancelledOverWebSocket(t *testing.T) {
	t.Parallel()
	svc, id, url := overREST(t)
	conn, _, err := websocket.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	send := func(text string) {
		t.Helper()
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"command": "echo begun; sleep 600", "resumable": true}`)
	var exec struct{ ExecID string }
	var last string
	for {
		kind, m, err := conn.Read(t.Context())
		if err != nil {
			break
		}
		if kind != websocket.MessageText {
			send(`{"cancel": true}`) // the command has printed, so it is running
			continue
		}
		if last = string(m); exec.ExecID == "" {
			if err := json.Unmarshal(m, &exec); err != nil {
				t.Fatalf("the first message: %s, %v", m, err)
			}
		}
	}
	if !strings.Contains(last, `"conflict"`) || !strings.Contains(last, "begun") {
		t.Errorf("the last message: %s", last)
	}
	if _, err := svc.ResumeExec(t.Context(), id, exec.ExecID, 0, nil); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("its end: %v", err)
	}
}

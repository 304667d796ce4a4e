package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/bridge"
	"hutch/internal/fakeservice"
)

// TestBadBodies: every route with a JSON body refuses any bad body, in the shape of the bridge.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, bridge.Options{})
	bodies := map[string]string{
		"malformed": `{"argv": `, "a list": `[1, 2]`, "a number": `17`, "unknown": `{"nonsense": 1}`, "two values": `{}{}`,
		"wrong types": `{"argv":{"a":1},"id":[],"mountPath":{},"name":[1],"options":7}`,
		"deep":        strings.Repeat("[", 1<<20), "huge": `{"argv":["` + strings.Repeat("x", 10<<20) + `"]}`, "zeros": strings.Repeat("\x00", 9<<20),
	}
	for _, path := range []string{"exec", "session", "mount", "unmount", "tunnel/8080"} {
		for name, body := range bodies {
			a := b.ask("POST", "/v1/sandbox/any/"+path, body)
			var f bridge.Failure
			shaped := json.Unmarshal([]byte(a.body), &f) == nil && f.Error != "" && f.Code != ""
			if (a.status != 400 && a.status != 413 && a.status != 501) || !shaped || len(a.body) > 2000 {
				t.Errorf("%s with %s: %d %.300s", path, name, a.status, a.body)
			}
		}
	}
}

// TestClientThatDoesNotRead: a client that does not read loses its command after a while, and nothing else waits for
// it.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	svc := &fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		flood := []byte(strings.Repeat("flood", 10_000))
		for {
			if err := out(hutch.Output{Stream: hutch.Stdout, Data: flood}); err != nil {
				ended <- err
				return hutch.ExecResult{Timestamp: time.Now()}, err
			}
		}
	}}
	b := serve(t, svc, bridge.Options{Stall: 200 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"argv":["flood"]}`
	fmt.Fprintf(conn, "POST /v1/sandbox/any/exec HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the command still waits for its reader")
	}
}

// TestEndlessBody: a body that stops coming ends the request.
func TestEndlessBody(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{OnFiles: drain{}}
	b := serve(t, svc, bridge.Options{Stall: 200 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "PUT /v1/sandbox/any/file/workspace/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nthe beginning")
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, 512)
	n, err := conn.Read(got)
	if err != nil && err != io.EOF || !strings.Contains(string(got[:n]), " 400 ") && err == nil {
		t.Errorf("%v: %s", err, got[:n])
	}
}

// drain reads the content of every written file, and discards it.
type drain struct{ hutch.Files }

func (drain) WriteFile(_ context.Context, _ string, _ hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	_, err := io.Copy(io.Discard, r)
	return hutch.FileInfo{}, err
}

// TestRunsOnce: a sandbox that is destroyed while a command runs is not created again to run the command again.
func TestRunsOnce(t *testing.T) {
	t.Parallel()
	runs := 0
	svc := &fakeservice.Service{OnExec: func(_ context.Context, id string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		runs++
		return hutch.ExecResult{Timestamp: time.Now()}, hutch.Errorf(hutch.NotFound, "destroyed while the command ran").Naming(hutch.AboutSandbox, id)
	}}
	b := serve(t, svc, bridge.Options{})
	if a := b.ask("POST", "/v1/sandbox/any/exec", `{"argv":["x"]}`); a.status != http.StatusBadGateway || runs != 1 {
		t.Errorf("%d runs: %d %s", runs, a.status, a.body)
	}
}

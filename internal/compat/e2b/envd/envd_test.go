package envd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/hutchtest/fakeengine"
)

// world is a server of one sandbox on the real engine, without isolation.
type world struct {
	*testing.T
	svc     hutch.Service
	sandbox string
	url     string
	home    string
	handler *Handler
}

func newWorld(t *testing.T, opt Options) *world {
	t.Helper()
	svc := fakeengine.Start(t)
	sb, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "box", Limits: hutch.Limits{Processes: 50}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, svc: svc, sandbox: sb.ID, handler: New(opt)}
	t.Cleanup(w.handler.Close)
	w.url = w.serve(func(*seam.Target) {})
	res, err := svc.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "echo $HOME"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.home = strings.TrimSpace(string(res.Stdout))
	return w
}

// serve starts a server for the sandbox. change can modify the target of each request.
func (w *world) serve(change func(*seam.Target)) (url string) {
	s := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		target := seam.Target{Sandbox: w.sandbox, Service: w.svc, Verified: true}
		target.Record, _ = w.svc.Sandbox(r.Context(), w.sandbox)
		change(&target)
		w.handler.ServeHTTP(a, r.WithContext(seam.With(r.Context(), target)))
	}))
	w.Cleanup(s.Close)
	return s.URL
}

// post makes a request, and returns the answer with its body.
func (w *world) post(path, contentType string, body io.Reader, header ...string) (*http.Response, []byte) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+path, body)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	return w.do(r, header...)
}

func (w *world) get(path string, header ...string) (*http.Response, []byte) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	return w.do(r, header...)
}

func (w *world) do(r *http.Request, header ...string) (*http.Response, []byte) {
	w.Helper()
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp, b
}

// object is a JSON object.
type object = map[string]any

// call makes a unary call. A code is the code of an error, or empty.
func (w *world) call(rpc string, message any, header ...string) (answer object, code string) {
	w.Helper()
	b, _ := json.Marshal(message)
	resp, body := w.post("/"+rpc, "application/json", bytes.NewReader(b), header...)
	if err := json.Unmarshal(body, &answer); err != nil {
		w.Fatalf("%s: %d %s: %v", rpc, resp.StatusCode, body, err)
	}
	if resp.StatusCode != http.StatusOK {
		code, _ = answer["code"].(string)
		if code == "" {
			code = resp.Status
		}
	}
	return answer, code
}

// conversation is a stream that is being read.
type conversation struct {
	*testing.T
	body   *bufio.Reader
	cancel context.CancelFunc
	status int
}

func frameOf(message any) []byte {
	b, _ := json.Marshal(message)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// open opens a stream.
func (w *world) open(rpc string, message any, header ...string) *conversation {
	w.Helper()
	return w.openRaw(rpc, frameOf(message), header...)
}

func (w *world) openRaw(rpc string, body []byte, header ...string) *conversation {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	w.Cleanup(cancel)
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/"+rpc, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/connect+json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { resp.Body.Close() })
	return &conversation{w.T, bufio.NewReader(resp.Body), cancel, resp.StatusCode}
}

// next returns the next message. last reports whether this message ends the stream.
func (c *conversation) next() (message object, last bool) {
	c.Helper()
	message, last, err := c.read()
	if err != nil {
		c.Fatal(err)
	}
	return message, last
}

func (c *conversation) read() (message object, last bool, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(c.body, head[:]); err != nil {
		return nil, false, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(c.body, b); err != nil {
		return nil, false, err
	}
	return message, head[0]&endOfStream != 0, json.Unmarshal(b, &message)
}

// dig returns the value at a path of keys; nil if there is none.
func dig(v any, keys ...string) any {
	for _, key := range keys {
		m, _ := v.(object)
		v = m[key]
	}
	return v
}

// failure reads a stream to its end, and returns its error.
func (c *conversation) failure() (code, message string) {
	c.Helper()
	for {
		m, last := c.next()
		if last {
			code, _ = dig(m, "error", "code").(string)
			message, _ = dig(m, "error", "message").(string)
			return code, message
		}
	}
}

// outcome is all that a command printed, and how it ended.
type outcome struct {
	pid                 int
	stdout, stderr, pty string
	end                 object
	code, message       string // of an error
}

func decoded(v any) string {
	text, _ := v.(string)
	b, _ := base64.StdEncoding.DecodeString(text)
	return string(b)
}

// rest reads a stream of a command to its end.
func (c *conversation) rest() (o outcome) {
	c.Helper()
	for {
		m, last := c.next()
		if last {
			o.code, _ = dig(m, "error", "code").(string)
			o.message, _ = dig(m, "error", "message").(string)
			return o
		}
		if pid, ok := dig(m, "event", "start", "pid").(float64); ok {
			o.pid = int(pid)
		}
		o.stdout += decoded(dig(m, "event", "data", "stdout"))
		o.stderr += decoded(dig(m, "event", "data", "stderr"))
		o.pty += decoded(dig(m, "event", "data", "pty"))
		if end, ok := dig(m, "event", "end").(object); ok {
			o.end = end
		}
	}
}

// bash is the message that starts a command line as E2B's clients do.
func bash(line string) object {
	return object{"process": object{"cmd": "/bin/bash", "args": []string{"-c", line}}, "stdin": false}
}

// begin starts a command, and returns its stream and its process id.
func (w *world) begin(message object, header ...string) (*conversation, int) {
	w.Helper()
	c := w.open("process.Process/Start", message, header...)
	m, last := c.next()
	pid, ok := dig(m, "event", "start", "pid").(float64)
	if last || !ok {
		w.Fatalf("a stream begins with %v", m)
	}
	return c, int(pid)
}

// eventually polls until ok.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not within 20 s: %s", what)
		}
	}
}

func byPID(pid int) object { return object{"process": object{"pid": pid}} }

package envd

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/membudget"
)

// head is the head of a frame.
func head(flags byte, length uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{flags}, length)
}

// Bytes that are not a frame, or not one message, are refused in the format that clients read.
func TestHostileFrames(t *testing.T) {
	w := newWorld(t, Options{})
	good := frameOf(bash("true"))
	for _, c := range []struct {
		name string
		body []byte
		code string
	}{
		{"nothing", nil, "invalid_argument"},
		{"half a head", good[:3], "invalid_argument"},
		{"less than promised", append(head(0, 1000), "{}"...), "invalid_argument"},
		{"far less than promised", append(head(0, 1<<32-1), "{}"...), "invalid_argument"},
		{"more than promised", append(head(0, 1), "{}"...), "invalid_argument"},
		{"two messages", append(good, good...), "invalid_argument"},
		{"compressed", append(head(compressed, 2), "{}"...), "unimplemented"},
		{"other flags", append(head(0x80, 2), "{}"...), "invalid_argument"},
		{"no JSON", append(head(0, 3), "{]}"...), "invalid_argument"},
		{"no object", append(head(0, 2), "[]"...), "invalid_argument"},
		{"protobuf", append(head(0, 4), 0x0a, 2, 'h', 'i'), "invalid_argument"},
		{"a field that is not known", frameOf(object{"process": object{"cmd": "true"}, "nice": 10}), "unimplemented"},
		{"a base64 text that is none", frameOf(object{"process": 7}), "invalid_argument"},
		{"deep JSON", append(head(0, 40000), strings.Repeat("[", 40000)...), "invalid_argument"},
	} {
		stream := w.openRaw("process.Process/Start", c.body)
		if stream.status != http.StatusOK {
			t.Errorf("%s: status %d", c.name, stream.status)
			continue
		}
		if code, message := stream.failure(); code != c.code || message == "" {
			t.Errorf("%s: %s: %s", c.name, code, message)
		}
	}
}

func TestHostileCalls(t *testing.T) {
	w := newWorld(t, Options{})
	large := `{"path": "` + strings.Repeat("a", 10<<20) + `"}`
	for _, c := range []struct {
		name, kind, body string
		status           int
		header           []string
	}{
		{"10 MB of JSON", unaryType, large, 400, nil},
		{"more than any message", unaryType, strings.Repeat(" ", maxMessage+1), 429, nil},
		{"the binary codec", "application/proto", "\x0a\x02hi", 415, nil},
		{"gRPC", "application/grpc+json", "{}", 415, nil},
		{"a stream's type", streamType, "{}", 415, nil},
		{"another charset", unaryType + "; charset=utf-16", "{}", 415, nil},
		{"compressed", unaryType, "{}", 501, []string{"Content-Encoding", "gzip"}},
		{"two objects", unaryType, `{"path":"/"} {"path":"/"}`, 400, nil},
		{"a number as a path", unaryType, `{"path": 5}`, 400, nil},
		{"a zero byte in a path", unaryType, `{"path": "a\u0000b"}`, 400, nil},
		{"an unknown field", unaryType, `{"path": "/", "follow": true}`, 501, nil},
	} {
		resp, body := w.post("/"+fsService+"Stat", c.kind, strings.NewReader(c.body), c.header...)
		if resp.StatusCode != c.status || c.status != 415 && !strings.Contains(string(body), `"code":"`) {
			t.Errorf("%s: %d %.300s", c.name, resp.StatusCode, body)
		}
	}
	if resp, _ := w.get("/" + fsService + "Stat"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", resp.StatusCode)
	}
}

// A message that never ends holds its request for as long as a client may be silent, and no longer.
func TestMessageThatNeverEnds(t *testing.T) {
	w := newWorld(t, Options{Stall: 200 * time.Millisecond})
	for path, kind := range map[string]string{"/process.Process/Start": streamType, "/" + fsService + "Stat": unaryType} {
		body, in := io.Pipe()
		go in.Write(head(0, 1000))
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+path, body)
		req.Header.Set("Content-Type", kind)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !strings.Contains(string(b), "invalid_argument") {
				t.Errorf("%s: %d %s", path, resp.StatusCode, b)
			}
		}
		in.Close()
	}
	w.handler.calls.Wait()
}

// A client that stops reading loses its stream; the command continues.
func TestClientThatStopsReading(t *testing.T) {
	w := newWorld(t, Options{Stall: 300 * time.Millisecond})
	w.begin(bash("head -c 16000000 /dev/zero; sleep 60"))
	w.handler.calls.Wait()
	all, err := w.svc.Processes(t.Context(), w.sandbox)
	if err != nil || len(all) != 1 || !all[0].Status.Live() {
		t.Errorf("%v %v", all, err)
	}
}

// The part of a form outside its files is bounded, however small it is when compressed.
func TestFormThatIsNoFile(t *testing.T) {
	w := newWorld(t, Options{})
	for name, head := range map[string]string{
		"before the first part": "",
		"another field":         "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n",
	} {
		var body bytes.Buffer
		z, _ := gzip.NewWriterLevel(&body, gzip.BestSpeed)
		io.WriteString(z, head)
		for range maxRest>>20 + 1 {
			io.WriteString(z, strings.Repeat("\n", 1<<20))
		}
		io.WriteString(z, "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"late\"\r\n\r\nx\r\n--b--\r\n")
		z.Close()
		resp, answer := w.post("/files", "multipart/form-data; boundary=b", &body, "Content-Encoding", "gzip")
		if resp.StatusCode != 400 || !strings.Contains(string(answer), "in no file") {
			t.Errorf("%s: %d %.200s", name, resp.StatusCode, answer)
		}
	}
}

// The memory that the server keeps for a client does not grow with the client's requests, nor with the programs' work.
func TestRememberedIsSmall(t *testing.T) {
	w := newWorld(t, Options{})
	message := bash("sleep 60 # " + strings.Repeat("x", 100<<10))
	message["process"].(object)["envs"] = object{"A": strings.Repeat("y", 100<<10)}
	_, pid := w.begin(message)
	if c := w.handler.commands.get(place(t.Context(), seam.Target{Sandbox: w.sandbox}), pid); c == nil || len(fmt.Sprint(c.config)) > 2*maxConfig {
		t.Errorf("%.200v is remembered of a command", c)
	}
	answer, _ := w.call("process.Process/List", object{})
	list, _ := answer["processes"].([]any)
	if cmd, _ := dig(list[0], "config", "cmd").(string); !strings.Contains(cmd, "/bin/bash") {
		t.Errorf("%.200v", list)
	}

	free := func() (func(int) bool, func()) { return func(int) bool { return true }, func() {} }
	v, name := &watcher{budget: free}, strings.Repeat("d/", 2000)
	for range maxEventBytes/len(name) - 50 {
		if err := v.collect(filesystemEvent{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		v.collect(filesystemEvent{Name: name})
	}
	if n := len(v.events) * len(name); n > maxEventBytes {
		t.Errorf("%d bytes of changes are kept", n)
	}

	var lines strings.Builder
	for i := range 5 * maxNames {
		fmt.Fprintf(&lines, "u%d:x:%d:%d::/:/bin/sh\n", i, i+2, i+2)
	}
	q := request{ctx: t.Context(), target: seam.Target{Sandbox: w.sandbox, Service: passwd{w.svc, lines.String()}}}
	if ps, err := readPeople(q, &people{}); err != nil || len(ps.users) > maxNames || len(ps.groups) > maxNames || len(ps.users) < 10 {
		t.Errorf("%d users and %d groups are remembered: %v", len(ps.users), len(ps.groups), err)
	}
}

// passwd is a service in which all files have the same content.
type passwd struct {
	hutch.Service
	content string
}

func (p passwd) ReadFile(_ context.Context, _ string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	io.WriteString(w, p.content[:min(len(p.content), int(req.Length))])
	return hutch.FileInfo{}, nil
}

// A list is charged to its caller, so the server holds no more than the caller's share of memory for it.
func TestListIsCharged(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 50 {
		w.write("d/"+strings.Repeat("n", 100)+strconv.Itoa(i), "")
	}
	account, free := membudget.New(20_000, 20_000).Open("ada")
	defer free()
	q := request{httptest.NewRequest(http.MethodPost, "/", nil), seam.Target{Sandbox: w.sandbox, Service: w.svc}, t.Context()}
	if answer, err := w.handler.listDir(q, listDirRequest{Path: "d"}); err != nil || len(answer.Entries) != 50 {
		t.Errorf("%d entries, %v", len(answer.Entries), err)
	}
	q.ctx = caller.With(t.Context(), caller.Caller{Budget: account})
	if _, err := w.handler.listDir(q, listDirRequest{Path: "d"}); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("a list beyond the share of its caller: %v", err)
	}
}

// What watchers have collected is charged to their caller until the caller takes it: programs choose the names, and each sandbox can
// have many watchers.
func TestWatchersAreCharged(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("d/a", "")
	memory := membudget.New(20_000, 20_000)
	account, free := memory.Open("ada")
	q := request{httptest.NewRequest(http.MethodPost, "/", nil), seam.Target{Sandbox: w.sandbox, Service: w.svc}, caller.With(t.Context(), caller.Caller{Budget: account})}
	answer, err := w.handler.createWatcher(q, watchRequest{Path: w.home + "/d"})
	if err != nil {
		t.Fatal(err)
	}
	free() // the request has ended
	for i := range 200 {
		w.write("d/"+strings.Repeat("n", 200)+strconv.Itoa(i), "")
	}
	w.eventually("the watcher ends", func() bool {
		_, err := w.handler.watcherEvents(q, watcherRequest(answer))
		return err != nil && hutch.KindOf(err) == hutch.Exhausted
	})
	if _, err := w.handler.removeWatcher(q, watcherRequest(answer)); err != nil {
		t.Fatal(err)
	}
	w.eventually("its memory is given back", func() bool {
		account, free := memory.Open("ada")
		defer free()
		return account.Take(20_000)
	})
}

// A list of short values takes many times the memory of its text, and is charged before it is decoded.
func TestMessagesAreCharged(t *testing.T) {
	w := newWorld(t, Options{})
	account, free := membudget.New(8<<20, 8<<20).Open("ada")
	defer free()
	list := `{"process":{"cmd":"true","args":[` + strings.Repeat(`"",`, 100_000) + `""]}}`
	for path, kind := range map[string]string{"/process.Process/Start": streamType, "/process.Process/SendInput": unaryType} {
		body := []byte(list)
		if kind == streamType {
			body = append(head(0, uint32(len(list))), list...)
		}
		r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", kind)
		ctx := seam.With(caller.With(t.Context(), caller.Caller{Budget: account}), seam.Target{Sandbox: w.sandbox, Service: w.svc, Verified: true})
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r.WithContext(ctx))
		if text := answer.Body.String(); !strings.Contains(text, "resource_exhausted") || !strings.Contains(text, "lists in the message") {
			t.Errorf("%s: %d %.300s", path, answer.Code, text)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frameOf(bash("true")))
	f.Add(append(head(0, 9), "{}"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		message, err := onlyFrame(b)
		if err == nil && !bytes.Equal(append(head(0, uint32(len(message))), message...), b) {
			t.Errorf("%q was read as %q", b, message)
		}
		for _, m := range []any{&startRequest{}, &inputRequest{}, &signalRequest{}, &watchRequest{}, &listDirRequest{}} {
			if err := decode(b, m); err != nil && httpStatus[asRPC(err).Code] == 0 {
				t.Errorf("an error without a status: %v", err)
			}
		}
	})
}

func FuzzNameOfPart(f *testing.F) {
	f.Add(`form-data; name="file"; filename="a/b.txt"`)
	f.Fuzz(func(t *testing.T, text string) {
		field, name := nameOfPart(text)
		if field == "file" && !strings.HasPrefix(account{home: "/home/user"}.path(name), "/") {
			t.Errorf("%q is not absolute", name)
		}
	})
}

func FuzzEncoding(f *testing.F) {
	f.Add("gzip, deflate", "bytes=0-5")
	f.Fuzz(func(t *testing.T, encoding, ranges string) {
		header := http.Header{"Accept-Encoding": {encoding}, "Range": {ranges}}
		if got, ok := chooseEncoding(header); ok && got != "gzip" && got != "identity" {
			t.Errorf("%q", got)
		}
		keepaliveInterval(&http.Request{Header: http.Header{"Keepalive-Ping-Interval": {encoding}}})
	})
}

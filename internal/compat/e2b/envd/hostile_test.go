package envd

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// head is the head of a frame.
func head(flags byte, length uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{flags}, length)
}

// What is not a frame, or not one message, is refused in the shape that clients read.
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

package envd

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/compat/e2b/seam"
)

// form is a body of files, with their names as clients write them.
func form(names ...string) (contentType string, body *bytes.Buffer) {
	body = &bytes.Buffer{}
	f := multipart.NewWriter(body)
	for i := 0; i < len(names); i += 2 {
		header := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"` + names[i]}}
		part, _ := f.CreatePart(header)
		io.WriteString(part, names[i+1])
	}
	f.Close()
	return f.FormDataContentType(), body
}

func zipped(text string) *bytes.Buffer {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return &b
}

func (w *world) content(name string) string {
	b, err := os.ReadFile(filepath.Join(w.home, name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// A request with two paths is refused: it would mean another file to code that reads the last path.
func TestRepeatedParameter(t *testing.T) {
	w := newWorld(t, Options{})
	kind, body := form(`; filename="a.txt"`, "one")
	if resp, answer := w.post("/files?path=a.txt&path=b.txt", kind, body); resp.StatusCode != 400 || !strings.Contains(string(answer), "path") {
		t.Errorf("%d %s, want a refusal of the parameter path", resp.StatusCode, answer)
	}
}

func TestUpload(t *testing.T) {
	w := newWorld(t, Options{})
	kind, body := form(`; filename="a.txt"`, "one")
	resp, answer := w.post("/files?path=a.txt", kind, body)
	var files []writtenFile
	if json.Unmarshal(answer, &files); resp.StatusCode != 200 || len(files) != 1 || !reflect.DeepEqual(files[0], writtenFile{Path: w.home + "/a.txt", Name: "a.txt", Type: "file"}) || w.content("a.txt") != "one" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	// The names of several files have folders. The last name has a quote in it.
	kind, body = form(`; filename="d/e/b.txt"`, "two", `; filename="`+w.home+`/c.txt"`, "three", `; filename="é %22q%22.txt"`, "four")
	resp, answer = w.post("/files", kind, body)
	if resp.StatusCode != 200 || w.content("d/e/b.txt") != "two" || w.content("c.txt") != "three" || w.content(`é "q".txt`) != "four" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	// A field without a file name, as browsers send a text.
	kind, body = form("", "five")
	if resp, answer = w.post("/files?path=f.txt", kind, body); resp.StatusCode != 200 || w.content("f.txt") != "five" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	if resp, answer = w.post("/files?path=g.bin", "application/octet-stream", strings.NewReader("six")); resp.StatusCode != 200 || w.content("g.bin") != "six" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	if resp, answer = w.post("/files?path=h.bin", "application/octet-stream", zipped("seven"), "Content-Encoding", "gzip"); resp.StatusCode != 200 || w.content("h.bin") != "seven" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

func TestRefusedUploads(t *testing.T) {
	w := newWorld(t, Options{})
	os.Mkdir(filepath.Join(w.home, "dir"), 0o755)
	twoKind, two := form(`; filename="a"`, "1", `; filename="b"`, "2")
	sameKind, same := form(`; filename="a"`, "1", `; filename="./a"`, "2")
	namelessKind, nameless := form("", "1")
	emptyKind, empty := form()
	for _, c := range []struct {
		name, path, kind string
		body             io.Reader
		status           int
		header           []string
	}{
		{"two files, one path", "/files?path=first", twoKind, two, 400, nil},
		{"the same file twice", "/files", sameKind, same, 400, nil},
		{"no name", "/files", namelessKind, nameless, 400, nil},
		{"no file", "/files", emptyKind, empty, 400, nil},
		{"no path", "/files", "application/octet-stream", strings.NewReader("1"), 400, nil},
		{"a folder is there", "/files?path=dir", "application/octet-stream", strings.NewReader("1"), 400, nil},
		{"another type", "/files?path=x", "text/plain", strings.NewReader("1"), 415, nil},
		{"no boundary", "/files?path=x", "multipart/form-data", strings.NewReader("1"), 415, nil},
		{"not gzip", "/files?path=x", "application/octet-stream", strings.NewReader("1"), 400, []string{"Content-Encoding", "gzip"}},
		{"an unknown encoding", "/files?path=x", "application/octet-stream", strings.NewReader("1"), 400, []string{"Content-Encoding", "br"}},
		{"half of a gzip body", "/files?path=x", "application/octet-stream", bytes.NewReader(zipped(strings.Repeat("text", 1000)).Bytes()[:20]), 400, []string{"Content-Encoding", "gzip"}},
		{"half of a form", "/files?path=x", twoKind, strings.NewReader("--" + twoKind[len("multipart/form-data; boundary="):] + "\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhal"), 400, nil},
		{"metadata over the limit", "/files?path=x", "application/octet-stream", strings.NewReader("1"), 400, []string{"X-Metadata-Author", strings.Repeat("x", maxMetadata)}},
		{"metadata with a long name", "/files?path=x", "application/octet-stream", strings.NewReader("1"), 400, []string{"X-Metadata-" + strings.Repeat("x", maxMetadataName+1), "me"}},
		{"metadata that is not ASCII", "/files?path=x", "application/octet-stream", strings.NewReader("1"), 400, []string{"X-Metadata-Author", "\xff"}},
		{"an unknown user", "/files?path=x&username=nobody1", "application/octet-stream", strings.NewReader("1"), 401, nil},
	} {
		resp, answer := w.post(c.path, c.kind, c.body, c.header...)
		var refusal seam.Refusal
		if json.Unmarshal(answer, &refusal); resp.StatusCode != c.status || refusal.Code != c.status || refusal.Message == "" {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, answer)
		}
		if got := w.content("x"); !strings.Contains(got, "no such file") {
			t.Errorf("%s: the file has %q", c.name, got)
		}
	}
}

// Metadata comes with a file, and exists until the file is written again. Programs inside can write it, too.
func TestMetadata(t *testing.T) {
	w := newWorld(t, Options{})
	stat := func() any {
		answer, code := w.call("filesystem.Filesystem/Stat", object{"path": "a.txt"})
		if code != "" {
			t.Fatalf("%v: %s", answer, code)
		}
		entry, _ := answer["entry"].(map[string]any)
		return entry["metadata"]
	}
	for _, c := range []struct {
		header []string
		want   any
	}{
		{[]string{"X-Metadata-Author", "ada", "X-Metadata-Stage", "one two"}, map[string]any{"author": "ada", "stage": "one two"}},
		{nil, nil},
	} {
		resp, answer := w.post("/files?path=a.txt", "application/octet-stream", strings.NewReader("1"), c.header...)
		var files []map[string]any
		if json.Unmarshal(answer, &files); resp.StatusCode != 200 || len(files) != 1 || !reflect.DeepEqual(files[0]["metadata"], c.want) {
			t.Errorf("%d %s", resp.StatusCode, answer)
		}
		if got := stat(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, not %v", got, c.want)
		}
	}
	if err := unix.Setxattr(filepath.Join(w.home, "a.txt"), "user.e2b.by", []byte("a program"), 0); err != nil {
		t.Fatal(err)
	}
	if got := stat(); !reflect.DeepEqual(got, map[string]any{"by": "a program"}) {
		t.Errorf("%v", got)
	}
}

// A client that disconnects in the middle of an upload leaves no file.
func TestUploadThatBreaksOff(t *testing.T) {
	w := newWorld(t, Options{})
	address, _ := url.Parse(w.url)
	c, err := net.Dial("tcp", address.Host) // to disconnect at a moment that http.Client cannot choose
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /files?path=x HTTP/1.1\r\nHost: h\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("a", 300_000))
	w.eventually("the upload has begun", func() bool { return w.drafts() == 1 })
	c.Close()
	w.eventually("nothing is left", func() bool { return w.drafts() == 0 })
}

// drafts returns how many unfinished files of uploads are in the home folder.
func (w *world) drafts() (n int) {
	names, _ := os.ReadDir(w.home)
	for _, name := range names {
		if name.Name() == "x" || strings.HasPrefix(name.Name(), ".hutch-") {
			n++
		}
	}
	return n
}

// A client that is silent in the middle of an upload is disconnected after a while.
func TestUploadThatStalls(t *testing.T) {
	w := newWorld(t, Options{Stall: 200 * time.Millisecond})
	r, in := io.Pipe()
	defer in.Close()
	go in.Write([]byte("begin"))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/files?path=x", r)
	req.Header.Set("Content-Type", "application/octet-stream")
	if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != 400 && resp.StatusCode != 499 { // net/http ends the request's context with its body: either can be seen first
			t.Errorf("%d", resp.StatusCode)
		}
	}
	w.eventually("nothing is left", func() bool { return w.drafts() == 0 })
}

func TestDownload(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("a.txt", "0123456789")
	w.write("empty", "")
	resp, body := w.get("/files?path=a.txt", "Accept-Encoding", "gzip, deflate")
	if resp.StatusCode != 200 || string(body) != "0123456789" || resp.Header.Get("Content-Length") != "10" || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	resp, body = w.get("/files?path="+url.QueryEscape(w.home+"/a.txt"), "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v %v", err, resp.Header)
	}
	if text, _ := io.ReadAll(z); string(text) != "0123456789" {
		t.Errorf("it has %q", text)
	}
	for _, encoding := range []string{"gzip", "identity"} {
		if resp, body = w.get("/files?path=empty", "Accept-Encoding", encoding); resp.StatusCode != 200 || resp.Header.Get("Content-Length") != "0" || len(body) != 0 {
			t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
		}
	}
	for header, want := range map[string]string{"bytes=2-4": "206 234 bytes 2-4/10", "bytes=-3": "206 789 bytes 7-9/10", "bytes=8-": "206 89 bytes 8-9/10", "bytes=1-2,4-5": "200 0123456789 ", "bytes=20-": "416  bytes */10"} {
		resp, body = w.get("/files?path=a.txt", "Range", header)
		if got := fmt.Sprint(resp.StatusCode, " ", string(body), " ", resp.Header.Get("Content-Range")); got != want {
			t.Errorf("%s: %s", header, got)
		}
	}
}

func TestRefusedDownloads(t *testing.T) {
	w := newWorld(t, Options{})
	os.Mkdir(filepath.Join(w.home, "dir"), 0o755)
	w.write("a.txt", "1")
	for _, c := range []struct {
		path   string
		status int
		header []string
	}{
		{"nope", 404, nil}, {"dir", 400, nil}, {"a.txt&username=nobody1", 401, nil},
		{"a.txt", 406, []string{"Accept-Encoding", "identity;q=0"}}, {"a.txt", 406, []string{"Accept-Encoding", "br, *;q=0"}},
	} {
		resp, body := w.get("/files?path="+c.path, c.header...)
		var refusal seam.Refusal
		if json.Unmarshal(body, &refusal); resp.StatusCode != c.status || refusal.Code != c.status || refusal.Message == "" {
			t.Errorf("%s: %d %s", c.path, resp.StatusCode, body)
		}
	}
}

func TestSignatures(t *testing.T) {
	// The example of E2B's own client.
	if got, want := Signature("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", ""), "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"; got != want {
		t.Errorf("%s, and should be %s", got, want)
	}
	w := newWorld(t, Options{})
	w.write("a.txt", "1")
	w.url = w.serve(func(t *seam.Target) { t.Verified, t.Secret = false, "key" })
	link := func(path, operation, user, secret, end string) string {
		q := url.Values{"path": {path}, "signature": {Signature(path, operation, user, secret, end)}}
		if user != "" {
			q.Set("username", user)
		}
		if end != "" {
			q.Set("signature_expiration", end)
		}
		return "/files?" + q.Encode()
	}
	later, before := fmt.Sprint(time.Now().Add(time.Minute).Unix()), fmt.Sprint(time.Now().Add(-time.Minute).Unix())
	for _, c := range []struct{ name, path, want string }{
		{"signed", link("a.txt", "read", "", "key", ""), "200 1"},
		{"with a user and an end", link("a.txt", "read", "user", "key", later), "200 1"},
		{"expired", link("a.txt", "read", "", "key", before), `401 {"code":401,"message":"signature is already expired"}`},
		{"for another operation", link("a.txt", "write", "", "key", ""), `401 {"code":401,"message":"invalid signature"}`},
		{"with another key", link("a.txt", "read", "", "kez", ""), `401 {"code":401,"message":"invalid signature"}`},
		{"for another file", strings.Replace(link("a.txt", "read", "", "key", ""), "a.txt", "b.txt", 1), `401 {"code":401,"message":"invalid signature"}`},
		{"longer", strings.Replace(link("a.txt", "read", "", "key", before), before, later, 1), `401 {"code":401,"message":"invalid signature"}`},
		{"unsigned", "/files?path=a.txt", `401 {"code":401,"message":"missing signature query parameter"}`},
	} {
		resp, body := w.get(c.path)
		if got := fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body))); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if resp, _ := w.get("/health"); resp.StatusCode != 204 {
		t.Errorf("/health: %d", resp.StatusCode)
	}
	for _, path := range []string{"/metrics", "/envs", "/process.Process/List"} {
		if resp, _ := w.post(path, "application/json", strings.NewReader("{}")); resp.StatusCode != 401 {
			t.Errorf("%s without a token: %d", path, resp.StatusCode)
		}
	}
}

func TestOtherRoutes(t *testing.T) {
	w := newWorld(t, Options{})
	if resp, body := w.get("/metrics"); resp.StatusCode != 200 || !strings.Contains(string(body), `"mem_total"`) {
		t.Errorf("/metrics: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.get("/envs"); resp.StatusCode != 200 || !strings.Contains(string(body), `"HOME":"`+w.home+`"`) {
		t.Errorf("/envs: %d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/upgrade", "/process.Process/Nothing", "/debug"} {
		if resp, body := w.post(path, "application/json", strings.NewReader("{}")); resp.StatusCode != 404 || !strings.Contains(string(body), `"code":404`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, _ := w.get("/health", "Origin", "https://page.example"); resp.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("a page of another origin: %v", resp.Header)
	}
}

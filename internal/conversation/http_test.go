package conversation_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/conversation"
	"hutch/internal/hutchtest"
)

// serve puts a server of conversations on the network.
func serve(t testing.TB, s *conversation.Server) string {
	t.Helper()
	mux := http.NewServeMux()
	s.Routes(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func fetch(t testing.TB, address string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // redirects are answers, too
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// linksOf runs code and returns the links to what it made, by name, on base.
func linksOf(t *testing.T, s *conversation.Server, base, code string) map[string]string {
	t.Helper()
	links := map[string]string{}
	for _, f := range run(t, s, "a", code).Files {
		links[f.Name] = base + f.URL
	}
	return links
}

func TestDownload(t *testing.T) {
	t.Parallel()
	svc := hutchtest.Engine(t, "native", nil)
	s, _ := open(t, svc, conversation.Options{})
	base := serve(t, s)
	names := map[string]string{ // and the disposition
		"a.txt": "inline", "x.PNG": "inline", "evil.html": "attachment", "evil.svg": "attachment", "evil.js": "attachment", "none": "attachment", "d/e.csv": "attachment",
		"new\nline.txt": "inline", "quo\"te\\.txt": "inline", "%2e%2e": "attachment", "a?b#c d;e": "attachment", "ünï ☃.bin": "attachment", "\xff.bin": "attachment", "..%2f": "attachment",
	}
	code := "mkdir d"
	for name := range names {
		code += fmt.Sprintf("\nprintf x > $'%s'", strings.NewReplacer("\\", "\\\\", "\n", "\\n", "\xff", "\\xff").Replace(name))
	}
	links := linksOf(t, s, base, code)
	drop(t, svc) // a download needs no sandbox
	for name, disposition := range names {
		status, h, body := fetch(t, links[name])
		if status != http.StatusOK || body != "x" {
			t.Errorf("%q: %d %q", name, status, body)
		}
		kind, params, err := mime.ParseMediaType(h.Get("Content-Disposition"))
		if kind != disposition || params["filename"] != filepath.Base(name) || err != nil {
			t.Errorf("%q: disposition %q", name, h.Get("Content-Disposition"))
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox;") || strings.Contains(h.Get("Content-Type"), "html") || strings.Contains(h.Get("Content-Type"), "svg") {
			t.Errorf("%q: %v", name, h)
		}
	}
	if all, _ := svc.Sandboxes(t.Context(), hutch.Filter{}); len(all) != 0 {
		t.Error("a download made a sandbox")
	}
}

// TestForgedLinks changes every part of a valid link.
func TestForgedLinks(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{LinkLife: time.Hour})
	base := serve(t, s)
	links := linksOf(t, s, base, "echo mine > mine; echo other > other; mkdir d; echo deep > d/mine; touch $'mine\\x01'")
	if err := os.WriteFile(filepath.Join(filepath.Dir(folder), "outside"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(links["mine"])
	if err != nil {
		t.Fatal(err)
	}
	if status, _, body := fetch(t, u.String()); status != 200 || body != "mine\n" {
		t.Fatalf("the link itself: %d %q", status, body)
	}
	sig, exp := u.Query().Get("sig"), u.Query().Get("exp")
	bad := map[string]string{
		"none":                "/files/a/mine",
		"empty":               "/files/a/mine?exp=" + exp + "&sig=",
		"short":               "/files/a/mine?exp=" + exp + "&sig=" + sig[:len(sig)-2],
		"long":                "/files/a/mine?exp=" + exp + "&sig=" + sig + "00",
		"upper case":          "/files/a/mine?exp=" + exp + "&sig=" + strings.ToUpper(sig),
		"no expiry":           "/files/a/mine?sig=" + sig,
		"later expiry":        "/files/a/mine?exp=9" + exp + "&sig=" + sig,
		"same expiry, spelt":  "/files/a/mine?exp=0" + exp + "&sig=" + sig,
		"another file":        "/files/a/other?" + u.RawQuery,
		"a file below":        "/files/a/d/mine?" + u.RawQuery,
		"another folder":      "/files/b/mine?" + u.RawQuery,
		"what is not there":   "/files/a/nothing?" + u.RawQuery,
		"the folder":          "/files/a/?" + u.RawQuery,
		"out by dots":         "/files/a/..%2f..%2foutside?" + u.RawQuery,
		"out by dots, folder": "/files/..%2f../outside?" + u.RawQuery,
		"out by dots, plain":  "/files/a/../../outside?" + u.RawQuery,
		"dots twice encoded":  "/files/a/%252e%252e%252foutside?" + u.RawQuery,
		"a backslash":         "/files/a/..%5coutside?" + u.RawQuery,
		"a zero":              "/files/a/mine%00?" + u.RawQuery,
		"zero and expiry":     "/files/a/mine%00" + exp + "?sig=" + sig,
		"slashes":             "/files//a//mine?" + u.RawQuery,
		"split otherwise":     "/files/a%2fd/mine?" + u.RawQuery,
	}
	for i := range len(sig) * 4 { // every bit
		moved := []byte(sig)
		digit := strings.IndexByte("0123456789abcdef", moved[i/4]) ^ 1<<(i%4)
		moved[i/4] = "0123456789abcdef"[digit]
		bad[fmt.Sprintf("bit %d", i)] = "/files/a/mine?exp=" + exp + "&sig=" + string(moved)
	}
	for name, path := range bad {
		status, _, body := fetch(t, base+path)
		if status < 300 || strings.Contains(body, "secret") || strings.Contains(body, "mine\n") {
			t.Errorf("%s: %s: %d %q", name, path, status, body)
		}
	}
	// The answer is the same whether or not the file exists.
	_, _, there := fetch(t, base+bad["another file"])
	if _, _, absent := fetch(t, base+bad["what is not there"]); there != absent {
		t.Errorf("the answers tell what exists: %q, %q", there, absent)
	}
}

func TestExpiredLink(t *testing.T) {
	t.Parallel()
	s, _ := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{LinkLife: time.Nanosecond})
	for name, link := range linksOf(t, s, serve(t, s), "echo x > f") {
		if status, _, body := fetch(t, link); status != http.StatusForbidden || !strings.Contains(body, "expired") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// TestLinksFromInside serves files that a program, or an older deployment, has put into the folder.
func TestLinksFromInside(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{})
	base := serve(t, s)
	links := linksOf(t, s, base, "for f in abs rel dir/f fifo in gone closed; do mkdir -p $(dirname $f); echo was > $f; done")
	at := func(name string) string { return filepath.Join(folder, "a", "files", name) }
	if err := os.WriteFile(filepath.Join(filepath.Dir(folder), "outside"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"abs": "/etc/passwd", "rel": "../../../outside", "dir": "/etc", "in": "rel2", "closed": "closed"} {
		os.RemoveAll(at(name))
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	os.Remove(at("gone"))
	os.Remove(at("fifo"))
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, link := range links {
		status, _, body := fetch(t, link)
		if status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("%s: %d %q", name, status, body)
		}
		if strings.Contains(body, folder) {
			t.Errorf("%s: the answer tells of the host: %s", name, body)
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	s, _ := open(t, nil, conversation.Options{BaseURL: "https://code.example.com/x/"})
	status, h, body := fetch(t, serve(t, s)+"/")
	policy := h.Get("Content-Security-Policy")
	if status != 200 || !strings.HasPrefix(h.Get("Content-Type"), "text/html") || !strings.HasPrefix(policy, "default-src 'none'; connect-src 'self'; ") || !strings.Contains(policy, "img-src 'self' https://code.example.com") {
		t.Errorf("%d %v", status, h)
	}
	if strings.Contains(policy, "unsafe") || strings.Count(policy, "'sha256-") != 2 {
		t.Errorf("policy %q", policy)
	}
	if external := regexp.MustCompile(`(?i)https?://|\bon[a-z]+=|\bstyle=|<(script|link|img|iframe)[^>]+(src|href)`).FindAllString(body, -1); external != nil {
		t.Errorf("the policy would stop %q", external)
	}
	if strings.Contains(body, "/v1/docs") {
		t.Error("the page links to an API that this server has not")
	}
	s, _ = open(t, nil, conversation.Options{API: "/v1/docs"})
	if _, _, body := fetch(t, serve(t, s)+"/"); !strings.Contains(body, `<a href="/v1/docs">`) {
		t.Error("the page of the daemon does not link to its API")
	}
	for id := range strings.SplitSeq("token conversation language example code run stop output files status", " ") {
		if !strings.Contains(body, `id="`+id+`"`) {
			t.Errorf("the page has no %s", id)
		}
	}
}

// TestEvents follows runs, disconnects, and reconnects for what it missed.
func TestEvents(t *testing.T) {
	t.Parallel()
	s, _ := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{})
	base := serve(t, s)
	first := listen(t, base, "")
	run(t, s, "a", "echo x > f")
	begun, ended := first(), first()
	if begun.kind != "run.started" || begun.data["conversationId"] != "a" || begun.data["language"] != "bash" {
		t.Errorf("first %+v", begun)
	}
	if files, _ := ended.data["files"].([]any); ended.kind != "run.finished" || ended.data["exitCode"] != 0.0 || len(files) != 1 {
		t.Errorf("then %+v", ended)
	}
	_, err := s.Run(caller.WithOwner(t.Context(), caller.Owner{ID: "ann"}), conversation.Request{ConversationID: "secret", Language: "bash", Code: "true"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, "b", "exit 0")
	again := listen(t, base, begun.id)
	for _, want := range []string{"a", "b", "b"} {
		if e := again(); e.data["conversationId"] != want {
			t.Errorf("after coming back %+v, want one of %s", e, want)
		}
	}
}

type event struct {
	id, kind string
	data     map[string]any
}

// listen returns a function that waits for the next event.
func listen(t *testing.T, base, last string) func() event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/mcp/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", last)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Scan() // the comment that says that the stream has begun
	return func() (e event) {
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case key == "id":
				e.id = value
			case key == "event":
				e.kind = value
			case key == "data":
				json.Unmarshal([]byte(value), &e.data)
			case lines.Text() == "" && e.kind != "":
				return e
			}
		}
		t.Fatalf("the events ended: %v", lines.Err())
		return e
	}
}

// FuzzFile makes arbitrary requests: only signed files are served.
func FuzzFile(f *testing.F) {
	s, _ := open(f, nil, conversation.Options{Folder: f.TempDir()})
	mux := http.NewServeMux()
	s.Routes(mux)
	for _, seed := range []string{"a/b?sig=00", "a/..%2f..%2fetc%2fpasswd?sig=", "../../etc/passwd", "a%2f/b?exp=1&sig=%00", "//?exp=-1", "a/b;sig=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI("/files/" + path)
		if err != nil || strings.ContainsAny(path, " \r\n") {
			return
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, &http.Request{Method: "GET", URL: u, Host: "x", Header: http.Header{}})
		if w.Code < 300 && u.Path != "/" {
			t.Errorf("%q: %d", path, w.Code)
		}
	})
}

package console_test

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"hutch/internal/console"
)

const script = "export const answer = 42; // answer answer answer answer answer answer answer answer answer answer"

func built() fstest.MapFS {
	return fstest.MapFS{
		"index.html":           {Data: []byte(`<meta name="csp-nonce" content="__CSP_NONCE__"><script type="module" src="/assets/main-1a2b.js" nonce="__CSP_NONCE__"></script>`)},
		"favicon.svg":          {Data: []byte("<svg/>")},
		"assets/main-1a2b.js":  {Data: []byte(script)},
		"assets/_x-9f.css":     {Data: []byte("a{}")},
		"assets/font-9f.woff2": {Data: []byte("wOF2")},
	}
}

// open returns a console in front of a server that answers 418 to everything.
func open(t testing.TB, opt console.Options) (*console.Handler, http.Handler) {
	t.Helper()
	opt.Files = built()
	h, err := console.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return h, h.Inside(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
}

func get(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:7700"+path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestWhoGetsThePage: browsers get the page at the console's paths; all other requests are passed on.
func TestWhoGetsThePage(t *testing.T) {
	t.Parallel()
	h, all := open(t, console.Options{})
	for _, c := range []struct {
		method, path, accept string
		ours                 bool
	}{
		{"GET", "/", browser, true}, {"HEAD", "/", browser, true}, {"GET", "/signin", browser, true}, {"GET", "/sandboxes/demo/files?path=/etc", browser, true},
		{"GET", "/operating/tokens", browser, true}, {"GET", "/ask", "application/json, Text/HTML;q=0.1", true},
		{"GET", "/", "*/*", false}, {"GET", "/", "", false}, {"GET", "/", "application/json", false}, {"POST", "/", browser, false},
		{"GET", "/signin/x", browser, false}, {"GET", "/sandboxesx", browser, false}, {"GET", "/v1/sandboxes", browser, false}, {"GET", "/mcp", browser, false},
		{"GET", "/sandboxes", "application/json", false}, {"GET", "/x", "x/text/html", false},
		{"GET", "/favicon.svg", "*/*", true}, {"GET", "/assets/main-1a2b.js", "*/*", true}, {"GET", "/index.html", browser, false}, {"POST", "/assets/main-1a2b.js", "*/*", false},
	} {
		w := get(all, c.method, c.path, "Accept", c.accept)
		if ours := w.Code != http.StatusTeapot; ours != c.ours || ours && w.Code != 200 {
			t.Errorf("%s %s, Accept %q: %d", c.method, c.path, c.accept, w.Code)
		}
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Accept", c.accept)
		if h.IsOpen(r) != c.ours {
			t.Errorf("%s %s, Accept %q: open %v", c.method, c.path, c.accept, !c.ours)
		}
	}
}

// TestPolicy: the page runs only scripts below /assets/, other sites cannot frame it, and each answer has its own
// nonce.
func TestPolicy(t *testing.T) {
	t.Parallel()
	_, all := open(t, console.Options{Previews: "http://*.localhost:7700"})
	var nonces []string
	for range 2 {
		w := get(all, "GET", "/", "Accept", browser)
		policy := w.Header().Get("Content-Security-Policy")
		_, rest, _ := strings.Cut(policy, "'nonce-")
		nonce, _, _ := strings.Cut(rest, "'")
		nonces = append(nonces, nonce)
		if len(nonce) < 22 || strings.Count(w.Body.String(), nonce) != 2 || strings.Contains(w.Body.String(), "__") {
			t.Errorf("the nonce is %q in %s", nonce, w.Body)
		}
		for _, want := range []string{"default-src 'none'", "script-src localhost:7700/assets/;", "connect-src 'self' ws://localhost:7700 wss://localhost:7700;", "frame-src blob: http://*.localhost:7700;", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("no %q in %s", want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "script-src 'self'") {
			t.Error(policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-cache", "Vary": "Accept"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	if nonces[0] == nonces[1] {
		t.Error("two answers have one nonce")
	}
}

// TestPolicyOfOddHosts: a Host header does not become part of the policy unless it is a name.
func TestPolicyOfOddHosts(t *testing.T) {
	t.Parallel()
	_, all := open(t, console.Options{})
	for host, want := range map[string]string{
		"hutch.example.com": "script-src hutch.example.com/assets/;", "127.0.0.1:7700": "script-src 127.0.0.1:7700/assets/;",
		"[::1]:7700": "script-src 'self';", "192.0.2.7:7700": "script-src 'self';", "x;script-src *": "script-src 'self';", "a,b": "script-src 'self';", "*": "script-src 'self';", "": "script-src 'self';",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		r.Header.Set("Accept", browser)
		w := httptest.NewRecorder()
		all.ServeHTTP(w, r)
		if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, want) || strings.Count(policy, "script-src") != 1 {
			t.Errorf("%q: %s", host, policy)
		}
	}
}

// TestAssets: browsers may cache files with a hash in their names and get them compressed if they can decompress them.
// A missing file is never answered with the page.
func TestAssets(t *testing.T) {
	t.Parallel()
	_, all := open(t, console.Options{})
	for _, c := range []struct{ path, kind, cache string }{
		{"/assets/main-1a2b.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/assets/_x-9f.css", "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/assets/font-9f.woff2", "font/woff2", "public, max-age=31536000, immutable"},
		{"/favicon.svg", "image/svg+xml", "no-cache"},
	} {
		h := get(all, "GET", c.path).Header()
		if h.Get("Content-Type") != c.kind || h.Get("Cache-Control") != c.cache || h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %v", c.path, h)
		}
	}
	for accept, packed := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0": false, "br": false, "": false} {
		w := get(all, "GET", "/assets/main-1a2b.js", "Accept-Encoding", accept)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != packed {
			t.Fatalf("Accept-Encoding %q: packed %v", accept, got)
		}
		if packed {
			body, _ = gzip.NewReader(w.Body)
		}
		if content, _ := io.ReadAll(body); string(content) != script {
			t.Errorf("Accept-Encoding %q: %q", accept, content)
		}
	}
	for _, path := range []string{"/assets/", "/assets/old-77.js", "/assets/../index.html"} {
		if w := get(all, "GET", path, "Accept", browser); w.Code != 404 || strings.Contains(w.Body.String(), "<") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := get(all, "HEAD", "/assets/main-1a2b.js"); w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d bytes, %v", w.Body.Len(), w.Header())
	}
}

// TestStalledClient: a client that does not read a file loses its connection.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	files := built()
	files["assets/large-9f.js"] = &fstest.MapFile{Data: make([]byte, 64<<20)} // more than the system's buffers take
	h, err := console.Open(t.Context(), console.Options{Files: files, Stall: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	page := h.Inside(http.NotFoundHandler())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(answered)
		page.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) // runs before the server waits for this connection
	io.WriteString(conn, "GET /assets/large-9f.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case <-answered:
	case <-time.After(time.Minute):
		t.Error("the server still waits for the client")
	}
}

// TestNoPage: a folder without a page is an error instead of an empty page.
func TestNoPage(t *testing.T) {
	t.Parallel()
	if _, err := console.Open(t.Context(), console.Options{Files: fstest.MapFS{}}); err == nil {
		t.Error("no error")
	}
	if _, err := console.Open(t.Context(), console.Options{}); err != nil {
		t.Errorf("the page of this program: %v", err)
	}
}

// TestOwnHost: a browser that opens the page by a name of the machine is redirected to the console's own name. Nothing
// else is redirected.
func TestOwnHost(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{Host: "hutch.localhost"})
	browser := []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Sec-Fetch-Site", "none"}
	for host, want := range map[string]string{
		"127.0.0.1:7700": "http://hutch.localhost:7700/sandboxes?a=b", "localhost:8080": "http://hutch.localhost:8080/sandboxes?a=b", "LOCALHOST": "http://hutch.localhost/sandboxes?a=b",
		"[::1]:7700": "http://hutch.localhost:7700/sandboxes?a=b", "127.0.0.2:1": "http://hutch.localhost:1/sandboxes?a=b", "hutch.localhost:7700": "", "hutch.example.com": "", "other.localhost": "",
	} {
		p := s.page()
		p.origin = "http://" + host
		w := p.request("GET", "/sandboxes?a=b", "", browser...)
		if got := w.Header().Get("Location"); got != want || (w.Code == 302) != (want != "") || want != "" && !strings.Contains(w.Header().Get("Set-Cookie"), "Max-Age=0") {
			t.Errorf("%s: %d %q", host, w.Code, got)
		}
	}
	for name, header := range map[string][]string{
		"curl": {"Accept", "text/html", "Sec-Fetch-Site", ""}, "a frame": append(slices.Clone(browser), "Sec-Fetch-Dest", "iframe"), "a script": append(slices.Clone(browser), "Sec-Fetch-Mode", "cors"),
		"through a proxy": append(slices.Clone(browser), "X-Forwarded-For", "10.0.0.1"),
	} {
		if w := s.page().request("GET", "/sandboxes", "", header...); w.Code != 200 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	p := s.page()
	p.signIn(t, local) // programs can use the API by every name
	if w := p.request("GET", "/v1/x", ""); w.Code != 200 {
		t.Errorf("the API: %d", w.Code)
	}
}

// TestLost: a browser without a token that opens a path that the server lacks gets a page. The page has no scripts, and
// repeats nothing of the request.
func TestLost(t *testing.T) {
	t.Parallel()
	h, _ := open(t, console.Options{})
	lost := func(r *http.Request) bool { return console.IsLost(r) && strings.HasPrefix(r.URL.Path, "/nothing") }
	all := h.Lost(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), lost)
	const attack = "/nothing%3Cscript%3Ealert(1)%3C/script%3E?call=%22+1%22%3E%3Cimg"
	w := get(all, "GET", attack, "Accept", browser, "Referer", "http://evil.example/<b>", "User-Agent", "<b>")
	page := w.Body.String()
	if w.Code != 404 || !strings.Contains(page, `<a href="/">Open the console</a>`) || page != get(all, "GET", "/nothing", "Accept", browser).Body.String() {
		t.Errorf("%d %s", w.Code, page)
	}
	policy := w.Header().Get("Content-Security-Policy")
	for name, want := range map[string]string{"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Vary": "Accept", "Referrer-Policy": "no-referrer"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(page, "<script") {
		t.Errorf("%s: %s", policy, page)
	}
	if w := get(all, "HEAD", "/nothing", "Accept", browser); w.Code != 404 || w.Body.Len() > 0 {
		t.Errorf("HEAD: %d %q", w.Code, w.Body)
	}
	for name, c := range map[string][]string{
		"a program": {"GET", "/nothing", "Accept", "*/*"}, "a client of the API": {"GET", "/nothing", "Accept", "application/json"}, "a form": {"POST", "/nothing", "Accept", browser},
		"a token": {"GET", "/nothing", "Accept", browser, "Authorization", "Bearer x"}, "a token in the URL": {"GET", "/nothing?access_token=x", "Accept", browser}, "a known path": {"GET", "/v1", "Accept", browser},
	} {
		if w := get(all, c[0], c[1], c[2:]...); w.Code != http.StatusTeapot {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

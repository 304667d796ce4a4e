package preview

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/guesses"
	"hutch/internal/listen"
)

// sandboxServer is a Sandboxes with one sandbox, "box". All its ports are served by a handler of the test.
type sandboxServer struct {
	previews map[string]hutch.Preview
	inside   http.Handler
	addr     string // address of the server in the sandbox, if that is not a handler
	dialled  chan caller.Owner
}

func (s *sandboxServer) Preview(label string) (hutch.Preview, error) {
	if p, ok := s.previews[label]; ok {
		return p, nil
	}
	return hutch.Preview{}, hutch.ErrNoPreview
}

func (s *sandboxServer) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	if s.addr == "" {
		return nil, hutch.Errorf(hutch.Unavailable, "no server answers").With("port", port)
	}
	owner, _ := caller.OwnerOf(ctx)
	select {
	case s.dialled <- owner:
	default:
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", s.addr)
}

const (
	public  = "8000-box-public"
	private = "8000-box-private"
	ourKey  = "a-token-of-this-server"
)

// bed is a server with previews of the sandbox, at localhost.
type bed struct {
	*sandboxServer
	*httptest.Server
	handler *Handler
	cut     context.CancelFunc
	token   context.Context // ends with the test's token
	revoke  context.CancelFunc
}

// open serves previews of inside, or of nothing if inside is nil.
func open(t testing.TB, inside http.HandlerFunc, change func(*Options)) *bed {
	t.Helper()
	life, cut := context.WithCancel(context.Background())
	b := &bed{sandboxServer: &sandboxServer{inside: inside, dialled: make(chan caller.Owner, 1)}, cut: cut}
	b.token, b.revoke = context.WithCancel(context.Background())
	t.Cleanup(b.revoke)
	if inside != nil {
		server := httptest.NewServer(inside)
		t.Cleanup(server.Close)
		b.addr = server.Listener.Addr().String()
	}
	opt := Options{
		Sandboxes: b, Login: "http://daemon.example",
		Known: func(_ context.Context, token string) bool { return token == ourKey },
		May: func(_ context.Context, token string, _ hutch.Preview) (Visitor, bool) {
			return b.visitor(), token == ourKey
		},
		Named: func(name string, _ hutch.Preview) (Visitor, bool) {
			return b.visitor(), name == "tk-ours" && b.token.Err() == nil
		},
	}
	if change != nil {
		change(&opt)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the daemon") })
	b.handler = New(next, opt)
	b.Server = httptest.NewUnstartedServer(b.handler)
	b.Config.MaxHeaderBytes, b.Config.ReadHeaderTimeout, b.Config.Protocols = 64<<10, time.Second, listen.Protocols()
	b.Start()
	t.Cleanup(func() {
		cut()
		b.Close()
		b.handler.Close()
	})
	b.previews = map[string]hutch.Preview{}
	for token, access := range map[string]hutch.PortAccess{"public": hutch.PublicPort, "private": hutch.PrivatePort} {
		p := hutch.Port{SandboxID: "box", Port: 8000, Token: token, Access: access}
		_, port, _ := net.SplitHostPort(b.Listener.Addr().String())
		p.URL = "http://" + p.Label() + ".localhost:" + port
		b.previews[p.Label()] = hutch.Preview{Port: p, Owner: "alice", Key: []byte("key of " + token), Life: life}
	}
	return b
}

// visitor returns the holder of the test's token.
func (b *bed) visitor() Visitor {
	return Visitor{Hold: (&caller.Principal{Life: b.token}).Hold, Name: "tk-ours", Proof: []byte("present secret")}
}

// ask sends a request to a label, without following redirects.
func (b *bed) ask(t *testing.T, method, label, path string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if label != "" {
		req.Host = label + ".localhost"
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := b.Client().Transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp, string(text)
}

// dump answers with the request as it came in.
func dump(w http.ResponseWriter, r *http.Request) {
	text, _ := httputil.DumpRequest(r, true)
	w.Write(text)
}

func TestWhichHostIsAPreview(t *testing.T) {
	b := open(t, dump, nil)
	for host, want := range map[string]string{
		public + ".localhost":        "GET /",
		public + ".LOCALHOST.":       "GET /",
		public + ".localhost:8080":   "GET /",
		"localhost":                  "the daemon",
		"hutch.localhost":            "There is no such preview",
		"127.0.0.1":                  "the daemon",
		public + ".example.com":      "the daemon", // the guard of the daemon refuses this host
		"x." + public + ".localhost": "There is no such preview",
		public + "x.localhost":       "There is no such preview",
		"8000-box-.localhost":        "There is no such preview",
		"8000-.localhost":            "There is no such preview",
	} {
		req, _ := http.NewRequest("GET", b.URL, nil)
		req.Host = host
		resp, err := b.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(text), want) {
			t.Errorf("%s: %.80q, want %q", host, text, want)
		}
	}
	if owner := <-b.dialled; owner.ID != "alice" {
		t.Errorf("dialled on behalf of %q", owner.ID)
	}
}

func TestWhatGoesIn(t *testing.T) {
	b := open(t, dump, nil)
	_, text := b.ask(t, "POST", public, "/a%2Fb;c?x=1;y=2&z", strings.NewReader("body"),
		"Authorization", "Bearer "+ourKey, "Hutch-Token", ourKey, "Cookie", "a=1; hutch-preview=x.y; b=2; hutch_session=q", "Cookie", "hutch-preview=z;__Host-hutch_session=q",
		"X-Forwarded-For", "192.0.2.7", "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "gopher", "Forwarded", "for=evil",
		"Connection", "X-Secret", "X-Secret", "hop", "Proxy-Authorization", "Basic eA==", "Te", "deflate")
	for _, want := range []string{"POST /a%2Fb;c?x=1;y=2&z HTTP/1.1", "Host: " + public + ".localhost", "body", "Cookie: a=1; b=2", "X-Forwarded-Proto: http\r", "X-Forwarded-Host: " + public + ".localhost", "X-Forwarded-For: 127.0.0.1\r"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, bad := range []string{ourKey, "hutch-preview", "hutch_session", "evil", "gopher", "X-Secret", "Basic", "deflate"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q went in:\n%s", bad, text)
		}
	}
	// The server's token is removed from every place where the server accepts it.
	_, text = b.ask(t, "GET", public, "/?a=b&access_token="+ourKey, nil, "X-Api-Key", ourKey, "Sec-WebSocket-Protocol", "chat, hutch.token."+ourKey)
	if strings.Contains(text, ourKey) || !strings.Contains(text, "GET /?a=b HTTP") || !strings.Contains(text, "Sec-Websocket-Protocol: chat\r") {
		t.Errorf("the token went in, or more than it was taken out:\n%s", text)
	}
	if _, text := b.ask(t, "GET", public, "/", nil, "Authorization", "Bearer of-the-app"); !strings.Contains(text, "Bearer of-the-app") {
		t.Errorf("the program's own token did not go in:\n%s", text)
	}
}

func TestWhatComesOut(t *testing.T) {
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		for _, c := range []string{"a=1; Domain=localhost; Path=/", "b=2; path=/x; DOMAIN = .example.com; HttpOnly", "hutch-preview=forged", "hutch_session=forged; Path=/", "c=3"} {
			w.Header().Add("Set-Cookie", c)
		}
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		w.Header().Set("X-Own", "kept")
		w.Header().Set("Location", "http://elsewhere.example/x?y#z")
		w.WriteHeader(http.StatusFound)
	}, nil)
	resp, _ := b.ask(t, "GET", public, "/", nil)
	if got := resp.Header.Values("Set-Cookie"); strings.Join(got, "|") != "a=1; Path=/|b=2; path=/x; HttpOnly|c=3" {
		t.Errorf("cookies: %q", got)
	}
	if resp.StatusCode != 302 || resp.Header.Get("Location") != "http://elsewhere.example/x?y#z" || resp.Header.Get("X-Own") != "kept" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp.Header.Get("Clear-Site-Data") != "" {
		t.Error("a preview clears what browsers keep of the domain")
	}
}

// If a preview sets a host, the server gets that host, and the visitor's host as the forwarded host.
func TestHostOfItsOwn(t *testing.T) {
	t.Parallel()
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, " for ", r.Header.Get("X-Forwarded-Host"))
	}, nil)
	p := b.previews[public]
	p.Host = "example.com:8000"
	b.previews[public] = p
	if _, body := b.ask(t, "GET", public, "/", nil); body != "example.com:8000 for "+public+".localhost" {
		t.Errorf("%q", body)
	}
}

// A page in the path form is on the daemon's host, so it must have a unique origin.
func TestPathsAreAlone(t *testing.T) {
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Set-Cookie": "a=1", "Service-Worker-Allowed": "/", "Access-Control-Allow-Origin": "*", "Content-Security-Policy": "default-src *",
			"Www-Authenticate": "Basic", "Location": "/next", "NEL": `{"report_to":"x","max_age":86400,"success_fraction":1}`, "Report-To": `{"group":"x","max_age":86400,"endpoints":[{"url":"https://elsewhere.example"}]}`,
		} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusFound)
		dump(w, r)
	}, nil)
	resp, text := b.ask(t, "GET", "", "/preview/"+public+"/x?y", nil, "Cookie", "daemon=1", "Origin", "null")
	if !strings.HasPrefix(text, "GET /x?y HTTP") || strings.Contains(text, "daemon=1") || !strings.Contains(text, "X-Forwarded-Prefix: /preview/"+public+"\r") {
		t.Errorf("what went in:\n%s", text)
	}
	for name, want := range map[string]string{"Set-Cookie": "", "Service-Worker-Allowed": "", "Www-Authenticate": "", "Nel": "", "Report-To": "", "Access-Control-Allow-Origin": "null", "Location": "/preview/" + public + "/next"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if csp := resp.Header.Values("Content-Security-Policy"); len(csp) != 2 || csp[0] != UniqueOrigin {
		t.Errorf("Content-Security-Policy: %q", csp)
	}
	for _, path := range []string{"/preview/8000-box-none/", "/preview/" + private + "/"} {
		if resp, _ := b.ask(t, "GET", "", path, nil, "Accept", "text/html"); !strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %d without isolation", path, resp.StatusCode)
		}
	}
	if resp, _ := b.ask(t, "OPTIONS", "", "/preview/"+public+"/x", nil, "Origin", "null", "Access-Control-Request-Method", "PUT"); resp.StatusCode != 204 {
		t.Errorf("a preflight: %d", resp.StatusCode)
	}
	if resp, _ := b.ask(t, "GET", "", "/preview/"+public, nil); resp.StatusCode != 308 || resp.Header.Get("Location") != "/preview/"+public+"/" {
		t.Errorf("without the slash: %d to %s", resp.StatusCode, resp.Header.Get("Location"))
	}
}

func TestNobodyListens(t *testing.T) {
	b := open(t, nil, nil)
	resp, text := b.ask(t, "GET", public, "/", nil, "Accept", "text/html,*/*")
	if resp.StatusCode != 502 || !strings.Contains(text, `http-equiv="refresh"`) || !strings.Contains(text, "8000") || len(text) > 2000 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if resp, text := b.ask(t, "GET", public, "/", nil); resp.StatusCode != 502 || !strings.Contains(text, `"kind":"unavailable"`) || resp.Header.Get("Retry-After") == "" {
		t.Errorf("to a program: %d %s", resp.StatusCode, text)
	}
	if _, text := b.ask(t, "POST", public, "/", strings.NewReader("x"), "Accept", "text/html"); strings.Contains(text, "refresh") {
		t.Error("the page would repeat a POST without its body")
	}
}

func TestPrivate(t *testing.T) {
	b := open(t, dump, nil)
	resp, text := b.ask(t, "GET", private, "/deep?a=b", nil, "Accept", "text/html")
	if resp.StatusCode != 401 || !strings.Contains(text, "http://daemon.example/preview/login?path=%2Fdeep%3Fa%3Db&amp;to="+private) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + ourKey, "Hutch-Token": ourKey} {
		if resp, _ := b.ask(t, "GET", private, "/", nil, name, value); resp.StatusCode != 200 {
			t.Errorf("with %s: %d", name, resp.StatusCode)
		}
		if resp, _ := b.ask(t, "GET", private, "/", nil, name, value+"x"); resp.StatusCode != 401 {
			t.Errorf("with a wrong %s: %d", name, resp.StatusCode)
		}
	}
}

func TestLinks(t *testing.T) {
	b := open(t, dump, nil)
	p := b.previews[private]
	good := p.Sign(time.Now().Add(time.Minute))
	resp, _ := b.ask(t, "GET", private, "//evil.example/x?a=1&hutch-link="+url.QueryEscape(good)+"&b=2", nil)
	cookies := resp.Cookies()
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/evil.example/x?a=1&b=2" || len(cookies) != 1 {
		t.Fatalf("%d to %q with %v", resp.StatusCode, resp.Header.Get("Location"), cookies)
	}
	if c := cookies[0]; c.Domain != "" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
		t.Errorf("the cookie %v", c)
	}
	cookie := "hutch-preview=" + cookies[0].Value
	own := "http://" + private + ".localhost"
	for _, test := range []struct {
		want   int
		method string
		header []string
	}{
		{200, "GET", nil},
		{200, "POST", []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}},
		{200, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{401, "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}},
		{401, "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{401, "POST", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{401, "POST", []string{"Origin", "http://" + public + ".localhost"}},
		{401, "GET", []string{"Origin", "null"}},
	} {
		if resp, _ := b.ask(t, test.method, private, "/", nil, append(test.header, "Cookie", cookie)...); resp.StatusCode != test.want {
			t.Errorf("%s with the cookie and %q: %d, want %d", test.method, test.header, resp.StatusCode, test.want)
		}
	}
	other := b.previews[public]
	for name, bad := range map[string]string{
		"expired": p.Sign(time.Now().Add(-time.Second)), "another's": other.Sign(time.Now().Add(time.Minute)),
		"changed": "9" + good, "cut": good[:20], "empty": ".", "no time": "x" + good,
	} {
		if resp, _ := b.ask(t, "GET", private, "/?hutch-link="+url.QueryEscape(bad), nil); resp.StatusCode != 401 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
		if resp, _ := b.ask(t, "GET", private, "/", nil, "Cookie", "hutch-preview="+bad); resp.StatusCode != 401 {
			t.Errorf("%s, as a cookie: %d", name, resp.StatusCode)
		}
	}
}

// TestLoginEndsWithItsToken: the cookie of a login is useless after the entered token has ended or got another secret.
func TestLoginEndsWithItsToken(t *testing.T) {
	b := open(t, dump, nil)
	p, end := b.previews[private], time.Now().Add(time.Hour)
	opens := func(signature string) bool {
		resp, _ := b.ask(t, "GET", private, "/", nil, "Cookie", "hutch-preview="+signature)
		return resp.StatusCode == 200
	}
	good := p.SignFor(end, "tk-ours", b.visitor().Proof)
	if !opens(good) {
		t.Error("the cookie of a login opens nothing")
	}
	plain, _, _ := strings.Cut(good, ".tk-ours")
	for name, bad := range map[string]string{
		"an earlier secret": p.SignFor(end, "tk-ours", []byte("earlier secret")), "another token": p.SignFor(end, "tk-other", b.visitor().Proof),
		"no name": plain, "a link with a name": p.Sign(end) + ".tk-ours",
	} {
		if opens(bad) {
			t.Errorf("a cookie with %s opens the preview", name)
		}
	}
	b.revoke()
	if opens(good) {
		t.Error("the cookie of a login outlives its token")
	}
}

func TestLogin(t *testing.T) {
	b := open(t, dump, nil)
	form := func(token string) io.Reader {
		return strings.NewReader(url.Values{"to": {private}, "path": {"/deep?a=b"}, "token": {token}}.Encode())
	}
	const typ = "application/x-www-form-urlencoded"
	if resp, text := b.ask(t, "GET", "", "/preview/login?to="+private+"&path=%22%3E%3Cscript%3E", nil); resp.StatusCode != 200 || strings.Contains(text, "<script") || !strings.Contains(text, private) {
		t.Errorf("the form: %d %s", resp.StatusCode, text)
	}
	if resp, text := b.ask(t, "POST", "", "/preview/login", form("wrong"), "Content-Type", typ); resp.StatusCode != 403 || !strings.Contains(text, "does not open") {
		t.Errorf("a wrong token: %d", resp.StatusCode)
	}
	resp, _ := b.ask(t, "POST", "", "/preview/login", form(ourKey), "Content-Type", typ)
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.StatusCode != 303 || !strings.HasPrefix(to.Host, private+".localhost") || to.Path != "/deep" || to.Query().Get("a") != "b" {
		t.Fatalf("%d to %v", resp.StatusCode, to)
	}
	if resp, _ := b.ask(t, "GET", private, to.RequestURI(), nil); resp.StatusCode != 303 || len(resp.Cookies()) != 1 {
		t.Errorf("the link: %d %v", resp.StatusCode, resp.Cookies())
	}
}

func TestGuessing(t *testing.T) {
	b := open(t, dump, nil)
	for range 100 { // a page that was left open
		b.ask(t, "GET", "8000-box-stale", "/", nil)
	}
	if resp, _ := b.ask(t, "GET", public, "/", nil); resp.StatusCode != 200 {
		t.Fatalf("after asking for one label often: %d", resp.StatusCode)
	}
	for i := range guesses.Most {
		b.ask(t, "GET", fmt.Sprintf("8000-box-%d", i), "/", nil)
	}
	if resp, _ := b.ask(t, "GET", public, "/", nil); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("after %d guesses: %d", guesses.Most, resp.StatusCode)
	}
	if resp, _ := b.ask(t, "GET", public, "/", nil, "X-Forwarded-For", "192.0.2.7"); resp.StatusCode != 429 {
		t.Errorf("after %d guesses, and with an address of its own choice: %d", guesses.Most, resp.StatusCode)
	}
}

// TestGuessingTokens: attackers cannot try many tokens, neither on a private preview, nor with the program of a public
// preview, which sees the tokens that are passed on.
func TestGuessingTokens(t *testing.T) {
	b := open(t, dump, nil)
	for i := range guesses.Most {
		b.ask(t, "GET", private, "/", nil, "Hutch-Token", fmt.Sprint("guess ", i))
	}
	if resp, _ := b.ask(t, "GET", private, "/", nil, "Hutch-Token", ourKey); resp.StatusCode != 429 {
		t.Errorf("after %d guesses of a private preview: %d", guesses.Most, resp.StatusCode)
	}
	for name, header := range map[string]func(guesses []string) []string{
		"a token in each request": nil,
		"all in one request": func(guesses []string) []string {
			return []string{"Sec-WebSocket-Protocol", "hutch.token." + strings.Join(guesses, ",hutch.token.")}
		},
		"in E2B's form, which is longer": func(guesses []string) []string {
			for i, g := range guesses {
				guesses[i] = "e2b_" + hex.EncodeToString([]byte(g+"-of-18-bytes"))
			}
			return []string{"Sec-WebSocket-Protocol", "hutch.token." + strings.Join(guesses, ",hutch.token.")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, dump, nil)
			var all []string
			for i := range mostForeign + 1 {
				all = append(all, fmt.Sprint("guess-", i))
			}
			if header == nil {
				for _, guess := range all {
					b.ask(t, "GET", public, "/", nil, "Authorization", "Bearer "+guess)
				}
			} else if resp, text := b.ask(t, "GET", public, "/", nil, header(append(all, ourKey))...); resp.StatusCode != 429 {
				t.Errorf("%d: %s", resp.StatusCode, text)
			}
			if resp, text := b.ask(t, "GET", public, "/", nil, "Authorization", "Bearer "+ourKey); resp.StatusCode != 429 {
				t.Errorf("a right guess after %d wrong ones: %d: %s", len(all), resp.StatusCode, text)
			}
			if resp, _ := b.ask(t, "GET", public, "/", nil); resp.StatusCode != 200 {
				t.Errorf("without a token: %d", resp.StatusCode)
			}
			long := strings.Repeat("a", unguessable)
			if resp, text := b.ask(t, "GET", public, "/", nil, "Authorization", "Bearer "+long); resp.StatusCode != 200 || !strings.Contains(text, long) {
				t.Errorf("a token of the program's own that is too long to be a guess: %d: %s", resp.StatusCode, text)
			}
		})
	}
}

// TestGuessesBehindAProxy: clients of a trusted proxy are counted separately.
func TestGuessesBehindAProxy(t *testing.T) {
	b := open(t, dump, func(opt *Options) {
		opt.Client = func(r *http.Request) (netip.Addr, bool) {
			return netip.MustParseAddr(r.Header.Get("X-Forwarded-For")), true
		}
	})
	for i := range guesses.Most {
		b.ask(t, "GET", fmt.Sprintf("8000-box-%d", i), "/", nil, "X-Forwarded-For", "192.0.2.1")
	}
	if resp, _ := b.ask(t, "GET", public, "/", nil, "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 429 {
		t.Errorf("after %d guesses: %d", guesses.Most, resp.StatusCode)
	}
	if resp, text := b.ask(t, "GET", public, "/", nil, "X-Forwarded-For", "192.0.2.7"); resp.StatusCode != 200 || !strings.Contains(text, "X-Forwarded-For: 192.0.2.7, 127.0.0.1\r") {
		t.Errorf("from elsewhere: %d, %s", resp.StatusCode, text)
	}
}

// TestUnknownHosts: a host below the domain of previews does not show the server's own pages, unless it is the server's
// own host.
func TestUnknownHosts(t *testing.T) {
	b := open(t, dump, func(opt *Options) { opt.Own = func(host string) bool { return host == "hutch.localhost" } })
	for host, want := range map[string]int{"x": 404, "a.b": 404, "8000-box-none": 404, "hutch": 200} {
		if resp, _ := b.ask(t, "GET", host, "/", nil); resp.StatusCode != want {
			t.Errorf("%s.localhost: %d, not %d", host, resp.StatusCode, want)
		}
	}
}

func TestBodiesAndStreams(t *testing.T) {
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	}, func(o *Options) { o.MaxBody = 64 << 20 })
	body := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB
	want := fmt.Sprintf("%d %x <nil>", len(body), sha256.Sum256(body))
	if _, text := b.ask(t, "PUT", public, "/", bytes.NewReader(body)); text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if _, text := b.ask(t, "PUT", public, "/", struct{ io.Reader }{bytes.NewReader(body)}); text != want {
		t.Errorf("in chunks: got %q, want %q", text, want)
	}
	if resp, _ := b.ask(t, "PUT", public, "/", struct{ io.Reader }{io.LimitReader(zeros{}, 65<<20)}); resp.StatusCode != 413 {
		t.Errorf("a body that is too large: %d", resp.StatusCode)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// Events arrive one by one, and end when the port is unexposed.
func TestEventsAndEnd(t *testing.T) {
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, nil)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", b.URL, nil)
	req.Host = public + ".localhost"
	resp, err := b.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); line != "data: 1\n" {
		t.Fatalf("%q, %v", line, err)
	}
	b.cut()
	if _, err := io.ReadAll(r); err == nil {
		t.Error("the stream ended in good order")
	}
}

// TestVisitsEndWithTheirRight: a stream or a WebSocket of a private preview ends with the token or the link that opened it.
func TestVisitsEndWithTheirRight(t *testing.T) {
	for name, way := range map[string]struct {
		header func(b *bed) string
		end    func(b *bed)
	}{
		"token": {func(*bed) string { return "Hutch-Token: " + ourKey }, func(b *bed) { b.revoke() }},
		"link": {func(b *bed) string {
			p := b.previews[private]
			return "Cookie: hutch-preview=" + p.Sign(time.Now().Add(2*time.Second))
		}, func(*bed) {}},
		"login": {func(b *bed) string {
			p := b.previews[private]
			return "Cookie: hutch-preview=" + p.SignFor(time.Now().Add(time.Hour), "tk-ours", b.visitor().Proof)
		}, func(b *bed) { b.revoke() }},
	} {
		for kind, upgrade := range map[string]string{"stream": "", "WebSocket": "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				b := open(t, talkOn, nil)
				conn, err := net.Dial("tcp", b.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(20 * time.Second))
				fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s.localhost\r\n%s\r\n%s\r\n", private, way.header(b), upgrade)
				r := bufio.NewReader(conn)
				if status, err := r.ReadString('\n'); err != nil || !strings.Contains(status, " 200 ") && !strings.Contains(status, " 101 ") {
					t.Fatalf("%q, %v", status, err)
				}
				way.end(b)
				if _, err := io.Copy(io.Discard, r); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("it still brings data after the right to see the preview has ended")
				}
			})
		}
	}
}

// talkOn is a server that writes without end, to a stream or to a hijacked connection.
func talkOn(w http.ResponseWriter, r *http.Request) {
	out, flush := io.Writer(w), func() { http.NewResponseController(w).Flush() }
	if r.Header.Get("Upgrade") != "" {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		out, flush = conn, func() {}
	}
	for {
		if _, err := io.WriteString(out, "more\n"); err != nil {
			return
		}
		flush()
		time.Sleep(20 * time.Millisecond)
	}
}

func TestWebSocket(t *testing.T) {
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			typ, msg, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), typ, append([]byte("echo "), msg...)) != nil {
				return
			}
		}
	}, nil)
	dial := func(label string, header http.Header) (*websocket.Conn, *http.Response, error) {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", b.Listener.Addr().String())
		}}
		t.Cleanup(transport.CloseIdleConnections)
		return websocket.Dial(t.Context(), "ws://"+label+".localhost/", &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header, Subprotocols: []string{"chat"},
		})
	}
	c, _, err := dial(public, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, text := range []string{"a", strings.Repeat("b", 30_000)} {
		if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, msg, err := c.Read(t.Context()); string(msg) != "echo "+text {
			t.Fatalf("%.40q, %v", msg, err)
		}
	}
	signature := b.previews[private]
	cookie := "hutch-preview=" + signature.Sign(time.Now().Add(time.Minute))
	if _, resp, err := dial(private, http.Header{"Cookie": {cookie}, "Origin": {"http://" + public + ".localhost"}}); err == nil || resp.StatusCode != 401 {
		t.Errorf("another preview's page opened a WebSocket of a private one: %v", err)
	}
	b.cut()
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("the WebSocket outlives the preview")
	}
}

// TestShow: an API that has authorized its client can show a server below one of its paths, and the API's own policy
// still applies.
func TestShow(t *testing.T) {
	t.Parallel()
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		fmt.Fprintf(w, "%s %q %q", r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Cookie"))
	}, nil)
	show := func(label string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/surface/8000/x", nil)
		r.Header.Set("Authorization", "Bearer "+ourKey)
		r.Header.Set("Cookie", "c=d")
		w := httptest.NewRecorder()
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		b.handler.Show(w, r, label, "/surface/8000")
		return w
	}
	w := show(private) // also a private one: the API decides who sees it
	if w.Code != 200 || w.Body.String() != `/x "" ""` || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if got := w.Header().Values("Content-Security-Policy"); len(got) != 2 || got[0] != UniqueOrigin || got[1] != "default-src 'none'" {
		t.Errorf("the policies are %q", got)
	}
	if w := show("8000-box-none"); w.Code != http.StatusNotFound {
		t.Errorf("a label of nothing: %d %s", w.Code, w.Body)
	}
}

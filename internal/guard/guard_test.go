package guard_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/caller"
	"hutch/internal/guard"
	"hutch/internal/hutchtest/tokens"
	"hutch/internal/listen"
	"hutch/internal/membudget"
	"hutch/internal/problem"
	"hutch/internal/quota"
)

// ask sends a request to a guarded handler as if it came over a connection.
func ask(t *testing.T, h http.Handler, edit func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost:7433/mcp", strings.NewReader("hello"))
	r.Header.Set("Authorization", "Bearer right")
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func echo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
}

var options = guard.Options{
	Check:   tokens.Only("right", "other"),
	Hosts:   []string{"hutch.example.com"},
	Origins: []string{"https://app.example.com"},
	MaxBody: 10,
}

func TestTokens(t *testing.T) {
	t.Parallel()
	h := guard.New(echo(), options)
	for auth, want := range map[string]int{
		"Bearer right":               200,
		"bearer other":               200,
		"Bearer  right":              200,
		"Bearer wrong":               401,
		"Bearer righ":                401,
		"Bearer rightt":              401,
		"Bearer ":                    401,
		"Bearer":                     401,
		"":                           401,
		"Bearer right, Bearer other": 401,
		"Basic right":                401,
		"right":                      401,
	} {
		w := ask(t, h, func(r *http.Request) { r.Header.Set("Authorization", auth) })
		if w.Code != want {
			t.Errorf("%q: %d, want %d", auth, w.Code, want)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (want == 401) != strings.HasPrefix(challenge, "Bearer ") {
			t.Errorf("%q: challenge %q", auth, challenge)
		}
	}
}

// A token is accepted in every place where clients put it, and in the form that old clients of E2B need. It appears in
// no line of the log.
func TestPlacesOfTokens(t *testing.T) {
	t.Parallel()
	const token = "hutch_right-token"
	var log bytes.Buffer
	var query string
	opt := guard.Options{Check: tokens.Only(token), Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	h := guard.New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { query = r.URL.RawQuery + r.RequestURI }), opt)
	places := map[string]func(r *http.Request, token string){
		"bearer":   func(r *http.Request, token string) { r.Header.Set("Authorization", "Bearer "+token) },
		"key":      func(r *http.Request, token string) { r.Header.Set("X-API-KEY", token) },
		"password": func(r *http.Request, token string) { r.SetBasicAuth("anyone", token) },
		"name":     func(r *http.Request, token string) { r.SetBasicAuth(token, "") },
		"subprotocol": func(r *http.Request, token string) {
			r.Header.Set("Sec-WebSocket-Protocol", "hutch, hutch.token."+token)
		},
		"query": func(r *http.Request, token string) {
			r.URL.Path, r.URL.RawQuery = "/v1/sandboxes", "access_token="+token
			r.RequestURI = r.URL.RequestURI()
		},
	}
	for name, put := range places {
		for _, c := range []struct {
			token string
			want  int
		}{{token, 200}, {e2bForm(token), 200}, {token + "x", 401}, {e2bForm("wrong"), 401}, {"", 401}} {
			w := ask(t, h, func(r *http.Request) { r.Header.Del("Authorization"); put(r, c.token) })
			if w.Code != c.want {
				t.Errorf("%s: %q: %d, not %d", name, c.token, w.Code, c.want)
			}
			for _, form := range []string{token, e2bForm(token)} {
				if strings.Contains(log.String(), form) || strings.Contains(query, form) || strings.Contains(w.Body.String(), form) {
					t.Fatalf("%s: the token is in the log, in the answer or in the URL after the guard", name)
				}
			}
		}
	}
}

// e2bForm is a token in the only form that older clients of E2B send.
func e2bForm(token string) string { return "e2b_" + hex.EncodeToString([]byte(token)) }

// Clients of another product's API get errors in the format of that API.
func TestShape(t *testing.T) {
	t.Parallel()
	opt := options
	opt.Shape = func(r *http.Request) guard.Refusal {
		if r.URL.Path != "/mcp" {
			return nil
		}
		return func(w http.ResponseWriter, status int, err error) { w.WriteHeader(status); io.WriteString(w, "no") }
	}
	w := ask(t, guard.New(echo(), opt), func(r *http.Request) { r.Header.Del("Authorization") })
	if w.Code != 401 || w.Body.String() != "no" || w.Header().Get("WWW-Authenticate") == "" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	w = ask(t, guard.New(echo(), opt), func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("12345678901")), 11 })
	if w.Code != 413 || w.Body.String() != "no" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	w = ask(t, guard.New(echo(), opt), func(r *http.Request) { r.Header.Del("Authorization"); r.URL.Path = "/v1/sandboxes" })
	if w.Code != 401 || !strings.Contains(w.Body.String(), `"kind":"denied"`) {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestNoTokensLetNoOneIn(t *testing.T) {
	t.Parallel()
	for _, check := range []func(context.Context, string) (*caller.Principal, error){nil, tokens.Only(""), tokens.Only()} {
		h := guard.New(echo(), guard.Options{Check: check})
		for _, header := range []string{"", "Bearer ", "Bearer right"} {
			if w := ask(t, h, func(r *http.Request) { r.Header.Set("Authorization", header) }); w.Code != 401 {
				t.Errorf("%q: %d", header, w.Code)
			}
		}
	}
}

func TestMetadataIsNamed(t *testing.T) {
	t.Parallel()
	opt := options
	opt.Metadata = "https://hutch.example.com/.well-known/oauth-protected-resource/mcp"
	w := ask(t, guard.New(echo(), opt), func(r *http.Request) { r.Header.Del("Authorization") })
	if got := w.Header().Get("WWW-Authenticate"); w.Code != 401 || got != `Bearer realm="hutch", resource_metadata="`+opt.Metadata+`"` {
		t.Errorf("%d %s", w.Code, got)
	}
}

// TestTwoTokens is an attack with two tokens in one request: one that a proxy checks, and another that the server would
// use.
func TestTwoTokens(t *testing.T) {
	t.Parallel()
	w := ask(t, guard.New(echo(), options), func(r *http.Request) { r.Header.Add("Authorization", "Bearer wrong") })
	if w.Code != 401 {
		t.Errorf("status %d", w.Code)
	}
}

// If tokens cannot be checked, the answer is not an error of the client.
func TestCheckUnavailable(t *testing.T) {
	t.Parallel()
	opt := options
	opt.Check = func(context.Context, string) (*caller.Principal, error) {
		return nil, hutch.Errorf(hutch.Unavailable, "the issuer does not answer: try again")
	}
	if w := ask(t, guard.New(echo(), opt), nil); w.Code != 503 || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

func TestPrincipalIsInTheContext(t *testing.T) {
	t.Parallel()
	h := guard.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := caller.From(r.Context()).Origin
		fmt.Fprint(w, caller.From(r.Context()).Principal.ID, " ", from.ClientRequest, " ", from.Remote)
	}), options)
	w := ask(t, h, func(r *http.Request) { r.Header.Set("X-Request-Id", "abc") })
	if got := w.Body.String(); got != "local abc 192.0.2.1:1234" {
		t.Errorf("%q", got)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	registry, err := auth.Open(t.Context(), auth.Options{Local: "right", LocalLimits: hutch.TokenLimits{Requests: 2}})
	if err != nil {
		t.Fatal(err)
	}
	opt := options
	opt.Check = registry.Check
	if opt.Requests, err = quota.Open(t.Context(), quota.Options{Window: time.Minute, What: "requests a minute", Limit: "requestsPerMinute"}); err != nil {
		t.Fatal(err)
	}
	h := guard.New(echo(), opt)
	for i, want := range []int{200, 200, 429, 429} {
		w := ask(t, h, nil)
		head := w.Header()
		left := strconv.Itoa(max(0, 1-i))
		if w.Code != want || head.Get("X-RateLimit-Limit") != "2" || head.Get("X-RateLimit-Remaining") != left {
			t.Errorf("call %d: %d %v", i, w.Code, head)
		}
		reset, err := strconv.ParseInt(head.Get("X-RateLimit-Reset"), 10, 64)
		if wait := time.Until(time.Unix(reset, 0)); err != nil || wait < 50*time.Second || wait > 62*time.Second {
			t.Errorf("call %d: reset %q", i, head.Get("X-RateLimit-Reset"))
		}
		after, _ := strconv.Atoi(head.Get("Retry-After"))
		if (want == 429) != (after > 0 && after <= 60) {
			t.Errorf("call %d: Retry-After %q", i, head.Get("Retry-After"))
		}
	}
	// Requests without a token do not use up the limit of a token.
	if w := ask(t, h, func(r *http.Request) { r.Header.Del("Authorization") }); w.Code != 401 || w.Header().Get("X-RateLimit-Limit") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestRevokedWhileOpen holds three requests open: one waits, one reads a body that never comes, one writes to a
// client that does not read.
func TestRevokedWhileOpen(t *testing.T) {
	t.Parallel()
	registry, err := auth.Open(t.Context(), auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := registry.CreateToken(t.Context(), hutch.TokenRequest{Name: "short"})
	if err != nil {
		t.Fatal(err)
	}
	open, ended := make(chan bool, 3), make(chan string, 3)
	srv := httptest.NewServer(guard.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open <- true
		switch r.URL.Path {
		case "/wait":
			<-r.Context().Done()
		case "/read":
			io.Copy(io.Discard, r.Body)
		case "/write":
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, 1<<16))
			}
		}
		ended <- r.URL.Path
	}), guard.Options{Check: registry.Check}))
	defer srv.Close()
	for _, path := range []string{"/wait", "/read", "/write"} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\n\r\n", path, token.Secret)
		<-open
	}
	if _, err := registry.RevokeToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 3 {
		<-ended
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestHealthIsOpen(t *testing.T) {
	t.Parallel()
	h := guard.New(echo(), options)
	for target, want := range map[string]int{
		"GET /v1/docs": 200, "GET /v1/openapi.json": 200, "GET /v1/openapi.yaml": 200, "GET /v1/docs/": 401, "POST /v1/docs": 401,
		"GET /health": 200, "HEAD /health": 200, "POST /health": 401, "GET /health/": 401, "GET /healthz": 401, "GET /": 401,
	} {
		method, path, _ := strings.Cut(target, " ")
		w := ask(t, h, func(r *http.Request) {
			r.Method, r.URL.Path = method, path
			r.Header.Del("Authorization")
		})
		if w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
}

// TestHealthBesideSlowReaders: health still answers when callers without a token hold all the connections that they can
// have.
func TestHealthBesideSlowReaders(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{}, 100)
	slow := func(r *http.Request) bool { return r.URL.Path == "/slow" }
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow(r) {
			held <- struct{}{}
			<-hold
		}
	})
	const share = 4
	srv := httptest.NewUnstartedServer(nil)
	gate := listen.NewGate(srv.Listener, listen.GateOptions{Most: 4 * share, Share: share, Shared: func(netip.Addr) bool { return true }})
	srv.Listener, srv.Config.ConnContext, srv.Config.Handler = gate, gate.Context, gate.Handler(guard.New(next, guard.Options{Open: slow, Claim: listen.Claim}))
	srv.Start()
	defer srv.Close()
	defer close(hold)
	for range share {
		go http.Get(srv.URL + "/slow")
	}
	for range share {
		<-held
	}
	for path, want := range map[string]int{"/health": 200, "/ready": 200, "/v1/openapi.yaml": 429, "/slow": 429} {
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	h := guard.New(echo(), options)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "localhost.": 200, "8000-sb-abc.localhost:7433": 200,
		"127.0.0.1:7433": 200, "127.9.9.9": 200, "[::1]:7433": 200, "[::1]": 200, "::1": 200,
		"hutch.example.com": 200, "Hutch.Example.com:443": 200,
		"evil.example": 403, "evil.example:7433": 403, "localhost.evil.example": 403, "notlocalhost": 403,
		"127.0.0.1.evil.example": 403, "192.168.1.5": 403, "hutch.example.com.evil.example": 403, "": 403, "x.hutch.example.com": 403,
	} {
		if w := ask(t, h, func(r *http.Request) { r.Host = host }); w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
	// Even health refuses a rebound name, so that the page cannot detect a server.
	w := ask(t, h, func(r *http.Request) { r.Method, r.URL.Path, r.Host = "GET", "/health", "evil.example" })
	if w.Code != 403 {
		t.Errorf("health by another name: %d", w.Code)
	}
}

// TestRebinding is a DNS rebinding attack: a page of evil.example, whose name now points at this server, so that Host
// and Origin agree.
func TestRebinding(t *testing.T) {
	t.Parallel()
	w := ask(t, guard.New(echo(), options), func(r *http.Request) {
		r.Host = "evil.example:7433"
		r.Header.Set("Origin", "http://evil.example:7433")
	})
	if w.Code != 403 {
		t.Errorf("status %d", w.Code)
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	h := guard.New(echo(), options)
	for origin, want := range map[string]int{
		"": 200, "http://localhost:7433": 200, "https://app.example.com": 200,
		"null": 403, "http://localhost:8000": 403, "http://localhost": 403, "https://app.example.com.evil.example": 403,
		"http://app.example.com": 403, "https://evil.example": 403, "://": 403,
	} {
		w := ask(t, h, func(r *http.Request) { r.Header.Set("Origin", origin) })
		if w.Code != want {
			t.Errorf("%q: %d, want %d", origin, w.Code, want)
		}
		if allow := w.Header().Get("Access-Control-Allow-Origin"); (origin == "https://app.example.com") != (allow == origin && allow != "") {
			t.Errorf("%q: allowed %q", origin, allow)
		}
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	h := guard.New(echo(), options)
	for origin, want := range map[string]int{"https://app.example.com": 204, "https://evil.example": 403} {
		w := ask(t, h, func(r *http.Request) {
			r.Method = http.MethodOptions
			r.Header.Del("Authorization")
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "authorization")
		})
		if w.Code != want {
			t.Errorf("%s: %d, want %d", origin, w.Code, want)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	h := guard.New(echo(), options)
	long := strings.Repeat("x", 11)
	if w := ask(t, h, func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(long)), 11 }); w.Code != 413 {
		t.Errorf("a length over the limit: %d", w.Code)
	}
	w := ask(t, h, func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(long)), -1 })
	if w.Body.Len() > 10 {
		t.Errorf("without a length %d bytes came through", w.Body.Len())
	}
}

func TestRequestIDAndLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	opt := options
	opt.Log = slog.New(slog.NewJSONHandler(&log, nil))
	var inside string
	var origin caller.Origin
	h := guard.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin = caller.From(r.Context()).Origin
		inside = origin.Request
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "four")
	}), opt)
	w := ask(t, h, func(r *http.Request) {
		r.Header.Set("X-Request-Id", "abc-1")
		r.URL.RawQuery = "sig=secret"
	})
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("log %q: %v", log.String(), err)
	}
	if w.Header().Get("X-Request-Id") != "abc-1" || !strings.HasPrefix(inside, "rq-") || line["request"] != inside || line["clientRequest"] != "abc-1" {
		t.Errorf("ids: answer %q, inside %q, log %v", w.Header().Get("X-Request-Id"), inside, line)
	}
	first := inside
	ask(t, h, func(r *http.Request) { r.Header.Set("X-Request-Id", "abc-1") })
	if inside == first || origin.Request != inside || origin.ClientRequest != "abc-1" {
		t.Errorf("two requests with one id of their client: %q and %q, on record as %+v", first, inside, origin)
	}
	if line["status"] != 418.0 || line["bytes"] != 4.0 || line["path"] != "/mcp" || line["method"] != "POST" {
		t.Errorf("line %v", line)
	}
	if s := log.String(); strings.Contains(s, "right") || strings.Contains(s, "secret") {
		t.Errorf("a secret in the log: %s", s)
	}
	log.Reset()
	ask(t, guard.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }), opt), nil)
	if !strings.Contains(log.String(), `"status":101`) {
		t.Errorf("a WebSocket's line: %s", log.String())
	}
	for _, bad := range []string{"", "a\nb", "a b", strings.Repeat("x", 65), "é"} {
		w := ask(t, h, func(r *http.Request) { r.Header["X-Request-Id"] = []string{bad} })
		if id := w.Header().Get("X-Request-Id"); !strings.HasPrefix(id, "rq-") {
			t.Errorf("%q: id %q", bad, id)
		}
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	h := guard.New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret path") }), options)
	w := ask(t, h, nil)
	d := problem.Read(w.Code, w.Body.Bytes())
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || d.Status != 500 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestPanicAfterTheStart: an answer that a panic ended must not look complete.
func TestPanicAfterTheStart(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(guard.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic("late")
	}), options))
	defer srv.Close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	req.Header.Set("Authorization", "Bearer right")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("read %q and a proper end", b)
	}
}

func BenchmarkGuard(b *testing.B) {
	h := guard.New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), options)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost/mcp", nil)
	r.Header.Set("Authorization", "Bearer right")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	h := guard.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, caller.From(r.Context()).Trace) }), options)
	for _, given := range []string{trace, "junk", ""} {
		want := ""
		if given == trace {
			want = trace
		}
		if w := ask(t, h, func(r *http.Request) { r.Header.Set("Traceparent", given) }); w.Body.String() != want {
			t.Errorf("%q: %q", given, w.Body)
		}
	}
}

// A token cannot make the server hold more memory than the token's share, whether its bodies have a known length or
// not. Other tokens have their own share.
func TestRoomForBodies(t *testing.T) {
	t.Parallel()
	opt := options
	opt.Budget, opt.MaxBody = membudget.New(100, 60), 1000
	opt.Check = func(_ context.Context, token string) (*caller.Principal, error) {
		return &caller.Principal{ID: token, Owner: token, Limits: hutch.TokenLimits{Requests: hutch.Unlimited}}, nil
	}
	var h http.Handler
	depth := 0
	h = guard.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			problem.Write(w, err)
			return
		}
		if depth++; depth > 1 {
			return
		}
		for token, want := range map[string]int{"one": 429, "two": 200} { // while the first request is still under way
			for _, length := range []int64{int64(len(body)), -1} {
				got := ask(t, h, func(r *http.Request) {
					r.Header.Set("Authorization", "Bearer "+token)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), length
				})
				if got.Code != want {
					t.Errorf("%s, with a length of %d: %d, want %d: %s", token, length, got.Code, want, got.Body)
				}
			}
		}
	}), opt)
	for range 2 { // released memory can be used again
		depth = 0
		got := ask(t, h, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer one")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 40))), 40
		})
		if got.Code != 200 {
			t.Errorf("alone: %d %s", got.Code, got.Body)
		}
	}
}

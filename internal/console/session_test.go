package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/caller"
	"hutch/internal/console"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
)

// collection keeps documents in memory, for several handlers that run one after another.
type collection struct {
	mu   sync.Mutex
	docs map[string][]byte
}

func (s *collection) Put(_ context.Context, key string, doc []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.docs == nil {
		s.docs = map[string][]byte{}
	}
	s.docs[key] = doc
	return nil
}

func (s *collection) Replace(ctx context.Context, key string, doc []byte) (bool, error) {
	if s.docs[key] == nil {
		return false, nil
	}
	return true, s.Put(ctx, key, doc)
}

func (s *collection) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.docs, key)
	return nil
}

func (s *collection) All(context.Context) (map[string][]byte, error) { return s.docs, nil }

const local = "the-token-of-the-server"

// site is a console behind the guard and in front of an API that answers with its caller.
type site struct {
	http.Handler
	tokens     *auth.Registry
	collection *collection
	people     console.Options // options of a site where people sign in with an issuer
}

func newSite(t testing.TB, opt console.Options) *site {
	t.Helper()
	tokens, err := auth.Open(t.Context(), auth.Options{Local: local, LocalFree: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{tokens: tokens, collection: &collection{}}
	s.open(t, opt)
	return s
}

// open opens the console again, as a restart of the server does.
func (s *site) open(t testing.TB, opt console.Options) {
	t.Helper()
	opt.Files, opt.Tokens = built(), s.tokens
	if opt.Collection == nil {
		opt.Collection = s.collection
	}
	h, err := console.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := caller.From(r.Context())
		fmt.Fprintf(w, "%s by %s", c.Principal.Name, c.Origin.Surface)
		if r.URL.Path == "/v1/stream" {
			<-r.Context().Done()
			fmt.Fprint(w, context.Cause(r.Context()))
		}
	})
	s.Handler = guard.New(h.Inside(api), guard.Options{Check: s.tokens.Check, Open: h.IsOpen, Session: h.Principal, Hosts: []string{"hutch.example.com"}, Origins: []string{"https://friend.example"}})
}

// page is a page of the console in a browser.
type page struct {
	site   *site
	origin string
	cookie string // as the browser sends it
	csrf   string
	header http.Header // of the answer to the last sign-in
}

func (s *site) page() *page { return &page{site: s, origin: "http://localhost:7700"} }

// request sends a request as the page's script does. Headers in the arguments replace those of the page; an empty value
// removes one.
func (p *page) request(method, path, body string, header ...string) *httptest.ResponseRecorder {
	scheme, host, _ := strings.Cut(p.origin, "://")
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(body))
	set := []string{"Cookie", p.cookie, "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty", "X-Hutch-CSRF", p.csrf}
	if method != "GET" {
		set = append(set, "Origin", p.origin, "Content-Type", "application/json")
	}
	set = append(set, header...)
	for i := 0; i < len(set); i += 2 {
		r.Header.Del(set[i])
		if set[i+1] != "" {
			r.Header.Set(set[i], set[i+1])
		}
	}
	_ = scheme
	w := httptest.NewRecorder()
	p.site.ServeHTTP(w, r)
	return w
}

type session struct {
	Kind, TokenID, Name, Owner, CSRF string
	Scopes                           []hutch.Scope
	Verbs                            []string
	ExpiresAt                        time.Time
	IdleSeconds                      int
}

func (p *page) signIn(t testing.TB, token string) session {
	t.Helper()
	w := p.request("POST", "/console/session", `{"token":"`+token+`"}`, "X-Hutch-CSRF", "")
	var s session
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 200 {
		t.Fatalf("sign in: %d %s", w.Code, w.Body)
	}
	c := w.Result().Cookies()[0]
	p.cookie, p.csrf, p.header = c.Name+"="+c.Value, s.CSRF, w.Header()
	return s
}

func (s *site) token(t testing.TB, name string, scopes ...hutch.Scope) hutch.MintedToken {
	t.Helper()
	m, err := s.tokens.CreateToken(t.Context(), hutch.TokenRequest{Name: name, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSignIn: a browser signs in, calls the API and signs out; afterwards its cookie is useless.
func TestSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	p := s.page()
	if w := p.request("GET", "/console/session", ""); w.Code != 401 || !strings.Contains(w.Body.String(), "sign in") {
		t.Errorf("before: %d %s", w.Code, w.Body)
	}
	m := s.token(t, "ada", hutch.ScopeRead)
	got := p.signIn(t, m.Secret)
	if got.Kind != "token" || got.TokenID != m.ID || got.Name != "ada" || got.Owner != m.ID || len(got.Scopes) != 1 || got.IdleSeconds != 12*3600 || time.Until(got.ExpiresAt) < 6*24*time.Hour {
		t.Errorf("%+v", got)
	}
	verbs := " " + strings.Join(got.Verbs, " ") + " "
	for verb, may := range map[string]bool{"Sandboxes": true, "ReadFile": true, "Exec": false, "CreateToken": false} {
		if strings.Contains(verbs, " "+verb+" ") != may {
			t.Errorf("%s: %s", verb, verbs)
		}
	}
	set := p.header.Get("Set-Cookie")
	for _, want := range []string{"hutch_session=", "HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(set, want) {
			t.Errorf("no %s in %s", want, set)
		}
	}
	if strings.Contains(set, "Domain") || strings.Contains(set, m.Secret) {
		t.Error(set)
	}
	w := p.request("POST", "/v1/sandboxes", "{}")
	if w.Code != 200 || w.Body.String() != "ada by console" {
		t.Errorf("a call: %d %s", w.Code, w.Body)
	}
	if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "sandbox") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("an answer that a browser could run: %v", w.Header())
	}
	if w := p.request("GET", "/console/session", ""); w.Code != 200 || !strings.Contains(w.Body.String(), p.csrf) {
		t.Errorf("a second tab: %d %s", w.Code, w.Body)
	}
	if w := p.request("DELETE", "/console/session", ""); w.Code != 204 || !strings.Contains(w.Header().Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("sign out: %d %v", w.Code, w.Header())
	}
	if w := p.request("GET", "/v1/sandboxes", ""); w.Code != 401 {
		t.Errorf("after: %d %s", w.Code, w.Body)
	}
	if w := p.request("DELETE", "/console/session", ""); w.Code != 204 || len(s.collection.docs) != 0 {
		t.Errorf("sign out again: %d, %d documents", w.Code, len(s.collection.docs))
	}
}

// TestForgery sends, with the cookie, the requests that pages of other origins can make a browser send.
func TestForgery(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	p := s.page()
	p.signIn(t, local)
	for name, c := range map[string]struct {
		method, path string
		header       []string
		want         int
	}{
		"a page of another site":         {"GET", "/v1/x", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"a preview of the same domain":   {"GET", "/v1/x", []string{"Sec-Fetch-Site", "same-site", "X-Hutch-CSRF", ""}, 403},
		"a person who typed the address": {"GET", "/v1/x", []string{"Sec-Fetch-Site", "none", "X-Hutch-CSRF", ""}, 403},
		"a page of another origin":       {"GET", "/v1/x", []string{"Sec-Fetch-Site", "", "Origin", "http://evil.localhost:7700"}, 403},
		"an allowed page":                {"GET", "/v1/x", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://friend.example"}, 403},
		"an allowed page, old browser":   {"POST", "/v1/x", []string{"Sec-Fetch-Site", "", "Origin", "https://friend.example"}, 403},
		"an isolated frame":              {"POST", "/v1/x", []string{"Sec-Fetch-Site", "", "Origin", "null"}, 403},
		"a form without the value":       {"POST", "/v1/x", []string{"X-Hutch-CSRF", ""}, 403},
		"a wrong value":                  {"POST", "/v1/x", []string{"X-Hutch-CSRF", "AAAA"}, 403},
		"a wrong value, to read":         {"GET", "/v1/x", []string{"X-Hutch-CSRF", "AAAA"}, 403},
		"nothing that says from where":   {"GET", "/v1/x", []string{"Sec-Fetch-Site", "", "X-Hutch-CSRF", ""}, 403},
		"a script element":               {"GET", "/v1/x", []string{"Sec-Fetch-Dest", "script"}, 403},
		"a service worker":               {"GET", "/v1/x", []string{"Sec-Fetch-Dest", "serviceworker", "X-Hutch-CSRF", ""}, 403},
		"a frame":                        {"GET", "/v1/x", []string{"Sec-Fetch-Dest", "iframe", "X-Hutch-CSRF", ""}, 403},
		"a socket without the value":     {"GET", "/v1/x", []string{"Upgrade", "websocket", "X-Hutch-CSRF", ""}, 403},
		"a socket with a wrong value":    {"GET", "/v1/x", []string{"Upgrade", "websocket", "X-Hutch-CSRF", "", "Sec-WebSocket-Protocol", "hutch, hutch.csrf.AAAA"}, 403},
		"two values":                     {"GET", "/v1/x", []string{"Sec-WebSocket-Protocol", "hutch, hutch.csrf." + p.csrf}, 403},
		"another page's sign-out":        {"DELETE", "/console/session", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"sign-out without the value":     {"DELETE", "/console/session", []string{"X-Hutch-CSRF", ""}, 403},
		"another page asks who it is":    {"GET", "/console/session", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another host":                   {"GET", "/v1/x", []string{"Origin", "http://hutch.example.com"}, 403},
	} {
		if w := p.request(c.method, c.path, "", c.header...); w.Code != c.want || strings.Contains(w.Body.String(), "by console") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	for name, c := range map[string]struct{ header []string }{
		"an image":                       {[]string{"X-Hutch-CSRF", "", "Sec-Fetch-Dest", "image"}},
		"a download":                     {[]string{"X-Hutch-CSRF", "", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate"}},
		"a script over plain HTTP":       {[]string{"Sec-Fetch-Site", "", "Sec-Fetch-Dest", ""}},
		"a socket":                       {[]string{"Upgrade", "websocket", "X-Hutch-CSRF", "", "Sec-WebSocket-Protocol", "hutch, hutch.csrf." + p.csrf}},
		"a socket that names its origin": {[]string{"Upgrade", "websocket", "X-Hutch-CSRF", "", "Sec-Fetch-Site", "", "Sec-Fetch-Dest", "", "Origin", p.origin, "Sec-WebSocket-Protocol", "hutch.csrf." + p.csrf + ",hutch"}},
	} {
		if w := p.request("GET", "/v1/x", "", c.header...); w.Code != 200 || w.Body.String() != "local by console" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestSignInFromElsewhere: a page of another origin cannot sign a browser in as a user of its choice.
func TestSignInFromElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	body := `{"token":"` + local + `"}`
	for name, header := range map[string][]string{
		"a page of another site": {"Sec-Fetch-Site", "cross-site", "Origin", "https://friend.example"}, "a preview": {"Sec-Fetch-Site", "same-site", "Origin", "http://x.localhost:7700"},
		"a form": {"Content-Type", "text/plain"}, "a form of the same origin": {"Content-Type", "application/x-www-form-urlencoded"},
	} {
		if w := s.page().request("POST", "/console/session", body, header...); w.Code < 400 || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	for _, body := range []string{"", "{}", `{"token":""}`, `{"token":1}`, `{"token":"x","more":1}`, "[]", `{"token":"` + strings.Repeat("x", 40<<10) + `"}`} {
		if w := s.page().request("POST", "/console/session", body); w.Code != 400 {
			t.Errorf("%.40s: %d %s", body, w.Code, w.Body)
		}
	}
}

// TestTokenEnds: a session ends with its token, and its calls in progress end too.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*site, *page, string) error{
		"revoked":  func(s *site, _ *page, id string) error { _, err := s.tokens.RevokeToken(t.Context(), id); return err },
		"rotated":  func(s *site, _ *page, id string) error { _, err := s.tokens.RotateToken(t.Context(), id); return err },
		"sign-out": func(_ *site, p *page, _ string) error { p.request("DELETE", "/console/session", ""); return nil },
	} {
		s := newSite(t, console.Options{})
		p, m := s.page(), s.token(t, "ada")
		p.signIn(t, m.Secret)
		streamed := make(chan string)
		go func() { streamed <- p.request("GET", "/v1/stream", "").Body.String() }()
		time.Sleep(10 * time.Millisecond) // so that both orders occur
		if err := end(s, p, m.ID); err != nil {
			t.Fatal(err)
		}
		if got := <-streamed; strings.Contains(got, "under way") == strings.Contains(got, "401") {
			t.Errorf("%s: the stream ended with %q", name, got)
		}
		if w := p.request("GET", "/v1/x", ""); w.Code != 401 {
			t.Errorf("%s: a call afterwards: %d %s", name, w.Code, w.Body)
		}
		if w := p.request("GET", "/console/session", ""); w.Code != 401 {
			t.Errorf("%s: who is it: %d %s", name, w.Code, w.Body)
		}
		if len(s.collection.docs) != 0 {
			t.Errorf("%s: the session is still stored", name)
		}
	}
}

// endedMeanwhile is a registry whose tokens end right after they are checked.
type endedMeanwhile struct {
	*auth.Registry
	end func(t *auth.Registry, id string) error
}

func (e endedMeanwhile) Check(ctx context.Context, token string) (*caller.Principal, error) {
	who, err := e.Registry.Check(ctx, token)
	if err != nil {
		return nil, err
	}
	return who, e.end(e.Registry, who.ID)
}

// TestTokenEndsInSignIn: a token that ends while a person signs in with it begins no session.
func TestTokenEndsInSignIn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*auth.Registry, string) error{
		"revoked": func(r *auth.Registry, id string) error { _, err := r.RevokeToken(t.Context(), id); return err },
		"rotated": func(r *auth.Registry, id string) error { _, err := r.RotateToken(t.Context(), id); return err },
	} {
		s := newSite(t, console.Options{})
		m := s.token(t, "ada")
		_, s.Handler = open(t, console.Options{Tokens: endedMeanwhile{s.tokens, end}, Collection: s.collection})
		w := s.page().request("POST", "/console/session", `{"token":"`+m.Secret+`"}`)
		if w.Code != 403 || w.Header().Get("Set-Cookie") != "" || len(s.collection.docs) != 0 {
			t.Errorf("%s: %d %v %s, %d documents", name, w.Code, w.Header(), w.Body, len(s.collection.docs))
		}
	}
}

// TestTimes: a session ends when it is not used for 12 hours, and after 7 days.
func TestTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, console.Options{})
		p := s.page()
		p.signIn(t, local)
		for range 7*24/11 + 1 {
			if w := p.request("GET", "/v1/x", ""); w.Code != 200 {
				t.Fatalf("in use: %d", w.Code)
			}
			time.Sleep(11 * time.Hour)
		}
		if w := p.request("GET", "/v1/x", ""); w.Code != 401 {
			t.Errorf("after 7 days: %d", w.Code)
		}
		p.signIn(t, local)
		time.Sleep(12 * time.Hour)
		if w := p.request("GET", "/v1/x", ""); w.Code != 401 {
			t.Errorf("after 12 idle hours: %d", w.Code)
		}
	})
}

// TestRestart: sessions outlive the server, unless their token ends meanwhile. The stored data cannot be used to sign in.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	ada, eve, m := s.page(), s.page(), s.token(t, "eve")
	ada.signIn(t, local)
	eve.signIn(t, m.Secret)
	for key, doc := range s.collection.docs {
		_, value, _ := strings.Cut(ada.cookie, "=")
		if text := key + string(doc); strings.Contains(text, value) || strings.Contains(text, local) || strings.Contains(text, ada.csrf) {
			t.Error(text)
		}
	}
	if _, err := s.tokens.RevokeToken(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	s.open(t, console.Options{})
	if w := ada.request("POST", "/v1/x", ""); w.Code != 200 {
		t.Errorf("after a restart: %d %s", w.Code, w.Body)
	}
	if w := eve.request("POST", "/v1/x", ""); w.Code != 401 || len(s.collection.docs) != 1 {
		t.Errorf("a revoked token after a restart: %d, %d documents", w.Code, len(s.collection.docs))
	}
}

// TestIdleStreams: the streams of a session end when it has made no request for 12 hours. A request keeps them open.
func TestIdleStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, console.Options{})
		p := s.page()
		p.signIn(t, local)
		streamed := make(chan string, 1)
		go func() { streamed <- p.request("GET", "/v1/stream", "").Body.String() }()
		time.Sleep(11 * time.Hour)
		if w := p.request("GET", "/v1/x", ""); w.Code != 200 {
			t.Fatalf("in use: %d", w.Code)
		}
		time.Sleep(11 * time.Hour)
		select {
		case got := <-streamed:
			t.Fatalf("the stream ended in use: %s", got)
		default:
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case got := <-streamed:
			if !strings.Contains(got, "sign in again") {
				t.Errorf("the stream ended with %q", got)
			}
		default:
			t.Error("the stream is open after 12 idle hours")
			p.request("DELETE", "/console/session", "")
		}
		if len(s.collection.docs) != 0 {
			t.Error("the session is still stored")
		}
	})
}

// TestDamagedSessions: stored sessions that cannot be read are removed, with a line in the log. The others stay.
func TestDamagedSessions(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	p := s.page()
	p.signIn(t, local)
	one := maps.Clone(s.collection.docs)
	for key, doc := range one {
		flipped := strings.NewReplacer("0", "1", "1", "0", "a", "b", "b", "a").Replace
		for i, damaged := range []string{"", "{", "null", "[]", `{"of":1}`, `{"of":"x"}`, `{"of":"","tokenSha256":"AAAA"}`, `{"of":"x","tokenSha256":"AAAA"}`, string(doc[:len(doc)/2])} {
			s.collection.docs[fmt.Sprintf("%02x", i)+flipped(key)[2:]] = []byte(damaged)
		}
		s.collection.docs["no hash"], s.collection.docs[""], s.collection.docs[key+"00"] = doc, doc, doc
	}
	var log hutchtest.Buffer
	s.open(t, console.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if !maps.EqualFunc(s.collection.docs, one, bytes.Equal) {
		t.Errorf("%d documents are left", len(s.collection.docs))
	}
	if n := strings.Count(log.String(), "drop a session"); n != 12 {
		t.Errorf("%d lines in the log: %s", n, log.String())
	}
	if w := p.request("POST", "/v1/x", ""); w.Code != 200 {
		t.Errorf("a session next to damaged ones: %d %s", w.Code, w.Body)
	}
}

// TestSignOutBesideAnotherCookie: a cookie that another host of the domain has set does not keep a user signed in.
func TestSignOutBesideAnotherCookie(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	ada, eve := s.page(), s.page()
	eve.signIn(t, s.token(t, "eve").Secret)
	for _, planted := range []string{eve.cookie, "hutch_session=nonsense", strings.Repeat(eve.cookie+"; ", 5) + "hutch_session="} {
		for _, first := range []bool{true, false} {
			ada.signIn(t, local)
			both := ada.cookie + "; " + planted
			if first {
				both = planted + "; " + ada.cookie
			}
			if w := ada.request("DELETE", "/console/session", "", "Cookie", both, "X-Hutch-CSRF", ""); w.Code != 403 {
				t.Errorf("without the value: %d %s", w.Code, w.Body)
			}
			if w := ada.request("DELETE", "/console/session", "", "Cookie", both); w.Code != 204 || !strings.Contains(w.Header().Get("Set-Cookie"), "Max-Age=0") {
				t.Errorf("%s: %d %s", both, w.Code, w.Body)
			}
			if w := ada.request("GET", "/v1/x", ""); w.Code != 401 {
				t.Errorf("after signing out with the cookie %s: %d", planted, w.Code)
			}
			ada.cookie = ""
		}
	}
	if w := eve.request("GET", "/v1/x", ""); w.Code != 200 {
		t.Errorf("the other session: %d", w.Code)
	}
}

// TestTwoCookies: when a neighbour in the domain has set a cookie of the same name, neither cookie is used. Over TLS a
// neighbour cannot set one.
func TestTwoCookies(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{Secure: func(r *http.Request) bool { return r.Host == "hutch.example.com" }})
	ada, eve := s.page(), s.page()
	ada.signIn(t, local)
	eve.signIn(t, s.token(t, "eve").Secret)
	for _, both := range []string{ada.cookie + "; " + eve.cookie, eve.cookie + ";" + ada.cookie} {
		if w := ada.request("GET", "/v1/x", "", "Cookie", both); w.Code != 403 || !strings.Contains(w.Body.String(), "2 cookies") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if w := ada.request("GET", "/v1/x", "", "Cookie", eve.cookie); w.Code != 403 {
		t.Errorf("a page with another session's cookie: %d %s", w.Code, w.Body)
	}

	tls := s.page()
	tls.origin = "https://hutch.example.com"
	tls.signIn(t, local)
	if set := tls.header.Get("Set-Cookie"); !strings.HasPrefix(set, "__Host-hutch_session=") || !strings.Contains(set, "Secure") {
		t.Error(set)
	}
	if w := tls.request("POST", "/v1/x", "", "Cookie", eve.cookie+"; "+tls.cookie); w.Code != 200 || w.Body.String() != "local by console" {
		t.Errorf("over TLS, with a cookie of another host: %d %s", w.Code, w.Body)
	}
	if w := tls.request("GET", "/console/session", "", "Cookie", eve.cookie); w.Code != 401 {
		t.Errorf("over TLS, only the cookie of a neighbour: %d %s", w.Code, w.Body)
	}
	if w := tls.request("POST", "/v1/x", "", "Origin", "http://hutch.example.com", "Sec-Fetch-Site", ""); w.Code != 403 {
		t.Errorf("the same host without TLS: %d %s", w.Code, w.Body)
	}
}

// TestCookieAndToken: a request with a token has the rights of the token, whatever its cookie.
func TestCookieAndToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	p, m := s.page(), s.token(t, "eve")
	p.signIn(t, local)
	if w := p.request("POST", "/v1/x", "", "Authorization", "Bearer "+m.Secret, "X-Hutch-CSRF", ""); w.Body.String() != "eve by " {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, header := range [][]string{{"Authorization", "Bearer wrong"}, {"X-API-Key", "wrong"}, {"Authorization", "nonsense"}} {
		if w := p.request("POST", "/v1/x", "", header...); w.Code != 401 {
			t.Errorf("%v: %d %s", header, w.Code, w.Body)
		}
	}
	if w := p.request("GET", "/v1/x?access_token="+m.Secret, ""); w.Body.String() != "eve by " {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestGuessing: an address that sends many wrong tokens is refused for a while, even with a right one. Other addresses
// are not.
func TestGuessing(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	for i := range 30 {
		if w := s.page().request("POST", "/console/session", fmt.Sprintf(`{"token":"guess %d"}`, i)); w.Code != 401 {
			t.Fatalf("guess %d: %d %s", i, w.Code, w.Body)
		}
	}
	w := s.page().request("POST", "/console/session", `{"token":"`+local+`"}`)
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// lines counts the records of the audit log.
type lines struct{ n int }

func (l *lines) Begin(ctx context.Context, _ audit.Operation) (context.Context, func(audit.Outcome), error) {
	l.n++
	return ctx, func(audit.Outcome) {}, nil
}

// TestGuessesOnRecord: callers with wrong tokens add only a bounded number of records to the audit log, however many
// they send.
func TestGuessesOnRecord(t *testing.T) {
	t.Parallel()
	var put lines
	s := newSite(t, console.Options{Observer: &put})
	for range 20 {
		if w := s.page().request("POST", "/console/session", `{"token":"wrong"}`); w.Code != 401 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if put.n != 1 {
		t.Errorf("one wrong token is on record %d times", put.n)
	}
	for i := range 50 {
		s.page().request("POST", "/console/session", fmt.Sprintf(`{"token":"guess %d"}`, i))
	}
	if put.n != 30 {
		t.Errorf("%d wrong tokens are on record", put.n)
	}
}

// TestManySessions: the number of sessions of a token is limited. At the limit, the token's first session ends;
// sessions of other tokens do not.
func TestManySessions(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	ada, m := s.page(), s.token(t, "eve")
	ada.signIn(t, local)
	first := s.page()
	first.signIn(t, m.Secret)
	for range 20 {
		s.page().signIn(t, m.Secret)
	}
	if w := first.request("GET", "/v1/x", ""); w.Code != 401 {
		t.Errorf("the first of 21 sessions: %d", w.Code)
	}
	if w := ada.request("GET", "/v1/x", ""); w.Code != 200 || len(s.collection.docs) != 21 {
		t.Errorf("another token's session: %d, %d documents", w.Code, len(s.collection.docs))
	}
}

// TestSignInAgain: a browser has one session; signing in as another user ends the previous one.
func TestSignInAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, console.Options{})
	p := s.page()
	p.signIn(t, local)
	old := *p
	p.signIn(t, s.token(t, "eve").Secret)
	if w := old.request("GET", "/v1/x", ""); w.Code != 401 {
		t.Errorf("the old session: %d", w.Code)
	}
	if w := p.request("POST", "/v1/x", ""); w.Body.String() != "eve by console" {
		t.Errorf("the new one: %d %s", w.Code, w.Body)
	}
}

package console_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"hutch/internal/auth"
	"hutch/internal/caller"
	"hutch/internal/console"
	"hutch/internal/hutchtest/issuer"
	"hutch/internal/openid"
)

const here = "http://localhost:7700"

// newPeopleSite returns a site where people sign in with an issuer.
func newPeopleSite(t *testing.T) (*site, *issuer.Issuer) {
	t.Helper()
	at := issuer.New(t)
	at.Redirect = here + console.DonePath
	people, err := auth.NewIssuer(auth.IssuerOptions{URL: at.URL, Audience: here + "/mcp"})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.Open(t.Context(), auth.Options{Local: local, LocalFree: true, Issuer: people})
	if err != nil {
		t.Fatal(err)
	}
	client, err := openid.New(openid.Options{Issuer: at.URL, ClientID: issuer.Client, Secret: issuer.Secret, Redirect: at.Redirect, Scopes: []string{"hutch:read", "hutch:exec"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{tokens: tokens, collection: &collection{}}
	s.people = console.Options{People: client, Person: func(_ context.Context, g *openid.Grant) *caller.Principal {
		return tokens.Person(g.Subject, g.Username, g.Scope, g.Expires)
	}}
	s.open(t, s.people)
	return s, at
}

// visit opens a path as a link on another site does, and returns the answer.
func (p *page) visit(path, cookie string) *httptest.ResponseRecorder {
	return p.request("GET", path, "", "Cookie", cookie, "X-Hutch-CSRF", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Accept", "text/html")
}

// way begins a sign-in with an issuer. It returns the browser's cookie, and the address to which the issuer sends the
// browser back.
func (p *page) way(t *testing.T, at *issuer.Issuer, to string) (cookie, back string) {
	t.Helper()
	w := p.visit("/console/oidc/begin?to="+url.QueryEscape(to), "")
	u, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != 303 || !strings.HasPrefix(u.String(), at.URL) {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	c := w.Result().Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Domain != "" {
		t.Error(c)
	}
	q := u.Query()
	return c.Name + "=" + c.Value, console.DonePath + "?" + url.Values{"state": {q.Get("state")}, "iss": {at.URL}, "code": {at.Code(q)}}.Encode()
}

// signInPerson signs a person in.
func (p *page) signInPerson(t *testing.T, at *issuer.Issuer) {
	t.Helper()
	cookie, back := p.way(t, at, "/sandboxes")
	p.arrive(t, p.visit(back, cookie))
}

// arrive takes the session from an answer, as the page does.
func (p *page) arrive(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	for _, c := range w.Result().Cookies() {
		if c.Name == "hutch_session" {
			p.cookie = c.Name + "=" + c.Value
		}
	}
	_, rest, _ := strings.Cut(p.request("GET", "/console/session", "", "X-Hutch-CSRF", "").Body.String(), `"csrf":"`)
	if p.csrf, _, _ = strings.Cut(rest, `"`); p.csrf == "" {
		t.Fatalf("no user is signed in: %d %v", w.Code, w.Header())
	}
}

// TestPeople: a person signs in with the issuer, calls the API, and signs out of both.
func TestPeople(t *testing.T) {
	t.Parallel()
	s, at := newPeopleSite(t)
	p := s.page()
	if w := p.request("GET", "/console/signin", ""); !strings.Contains(w.Body.String(), `"oidc":{"label":"127.0.0.1","href":"/console/oidc/begin"}`) {
		t.Error(w.Body)
	}
	cookie, back := p.way(t, at, "/sandboxes/x/files?path=/a b")
	w := p.visit(back, cookie)
	if got := w.Header().Get("Location"); w.Code != 303 || got != "/sandboxes/x/files?path=%2Fa+b" {
		t.Errorf("%d %s", w.Code, got)
	}
	p.arrive(t, w)
	if w := p.request("GET", "/console/session", ""); !strings.Contains(w.Body.String(), `"kind":"person","tokenId":"`+at.URL+`#ada","name":"ada.l","owner":"`+at.URL+`#ada","scopes":["read","exec"]`) {
		t.Error(w.Body)
	}
	if w := p.request("POST", "/v1/x", ""); w.Body.String() != "ada.l by console" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, doc := range s.collection.docs {
		if strings.Contains(string(doc), "again") || strings.Contains(string(doc), "opaque") {
			t.Errorf("tokens of the issuer are stored: %s", doc)
		}
	}
	w = p.request("DELETE", "/console/session", "")
	if w.Code != 200 || !strings.Contains(w.Body.String(), at.URL+"/end?") || !strings.Contains(w.Body.String(), "id_token_hint") || len(s.collection.docs) != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := p.request("GET", "/v1/x", ""); w.Code != 401 {
		t.Errorf("after signing out: %d", w.Code)
	}
}

// TestPeopleForged: no link signs a person in or leads to another site, whatever it contains.
func TestPeopleForged(t *testing.T) {
	t.Parallel()
	s, at := newPeopleSite(t)
	refused := func(name string, w *httptest.ResponseRecorder, code string) {
		t.Helper()
		if got := w.Header().Get("Location"); got != "/signin?error="+code || strings.Contains(strings.Join(w.Header()["Set-Cookie"], " "), "hutch_session") || len(s.collection.docs) != 0 {
			t.Errorf("%s: %q %v", name, got, w.Header())
		}
	}
	p := s.page()
	cookie, back := p.way(t, at, "/")
	other, of := s.page().way(t, at, "/")
	refused("a link that another has begun", p.visit(back, ""), "stale")
	refused("a link of another, in a browser that has begun one itself", p.visit(of, cookie), "stale")
	refused("a second cookie", p.visit(back, cookie+"; "+other), "stale")
	refused("nothing", p.visit(console.DonePath, ""), "stale")
	refused("canceled", p.visit(strings.Replace(back, "code=", "error=access_denied&code=", 1), cookie), "refused")
	refused("after it was canceled", p.visit(back, cookie), "stale")
	cookie, back = p.way(t, at, "/")
	at.Scope = "openid email"
	refused("without a scope of ours", p.visit(back, cookie), "permissions")
	cookie, back = p.way(t, at, "/")
	at.Down.Store(true)
	refused("without the issuer", p.visit(back, cookie), "unavailable")
	at.Down.Store(false)
	at.Scope = ""
	for _, to := range []string{"//evil.example", "https://evil.example/sandboxes", "/\\evil.example", "/sandboxes//evil.example", "/sandboxes/\\evil", "javascript:alert(1)", "/v1/sandboxes", "/console/oidc/begin", "/preview/x", "/signin?error=x", "\t//evil.example", "/sandboxes\r\nX: y", "http:/sandboxes", "", "%2F%2Fevil.example", "//evil.example/sandboxes/", "sandboxes"} {
		cookie, back := p.way(t, at, to)
		if got := p.visit(back, cookie).Header().Get("Location"); got != "/sandboxes" {
			t.Errorf("%q leads to %q", to, got)
		}
	}
	for _, host := range []string{"127.0.0.1:7700", "hutch.localhost:7700"} {
		moved := s.page()
		moved.origin = "http://" + host
		w := moved.visit("/console/oidc/begin?to=/sandboxes/x", "")
		if got := w.Header().Get("Location"); got != here+"/console/oidc/begin?moved=1&to=%2Fsandboxes%2Fx" {
			t.Errorf("%s: %s", host, got)
		}
		if got := moved.visit("/console/oidc/begin?moved=1", "").Header().Get("Location"); got != "/signin?error=host" {
			t.Errorf("%s, again: %s", host, got)
		}
	}
	for range 40 {
		p.visit(console.DonePath+"?state="+rand.Text(), "")
	}
	cookie, back = p.way(t, at, "/")
	if got := p.visit(back, cookie).Header().Get("Location"); got != "/signin?error=limit" {
		t.Errorf("after 40 wrong ones: %s", got)
	}
}

// TestPeopleRenewed: a session outlives its token as long as the issuer renews the token. When the issuer no longer
// does so, the session ends with all its open streams.
func TestPeopleRenewed(t *testing.T) {
	t.Parallel()
	s, at := newPeopleSite(t)
	at.Lifetime = 3 * time.Second
	p := s.page()
	p.signInPerson(t, at)
	streamed := make(chan string, 1)
	go func() { streamed <- p.request("GET", "/v1/stream", "").Body.String() }()
	for deadline := time.Now().Add(2 * time.Minute); at.Renewals.Load() < 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was renewed")
		}
	}
	select {
	case got := <-streamed:
		t.Fatalf("the stream ended at a renewal: %s", got)
	default:
	}
	if w := p.request("POST", "/v1/x", ""); w.Code != 200 {
		t.Errorf("after the renewals: %d %s", w.Code, w.Body)
	}
	at.Revoked.Store(true)
	if got := <-streamed; !strings.Contains(got, "sign in again") {
		t.Errorf("the stream ended with %q", got)
	}
	if w := p.request("GET", "/v1/x", ""); w.Code != 401 {
		t.Errorf("after the issuer refused: %d", w.Code)
	}
}

// shared is a collection that reports the changes of one server to another server.
type shared struct {
	*collection
	news chan func(hear func(string, []byte) error)
}

func (s *shared) publish(key string, doc []byte) {
	s.news <- func(hear func(string, []byte) error) { hear(key, doc) }
}

func (s *shared) Put(ctx context.Context, key string, doc []byte) error {
	defer s.publish(key, doc)
	return s.collection.Put(ctx, key, doc)
}

func (s *shared) Replace(ctx context.Context, key string, doc []byte) (bool, error) {
	there, err := s.collection.Replace(ctx, key, doc)
	if there {
		s.publish(key, doc)
	}
	return there, err
}

func (s *shared) Delete(ctx context.Context, key string) error {
	defer s.publish(key, nil)
	return s.collection.Delete(ctx, key)
}

// onChange calls a function for each change by another server.
func (s *shared) onChange(ctx context.Context, onChange func(string, []byte) error) error {
	go func() {
		for {
			select {
			case news := <-s.news:
				news(onChange)
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// TestPeopleOnTwoServers: when one server renews a session, the session and its open streams continue on the other
// servers. When the issuer takes rights away, they are gone on all servers.
func TestPeopleOnTwoServers(t *testing.T) {
	t.Parallel()
	s, at := newPeopleSite(t)
	at.Lifetime = 12 * time.Second // leaves 3 s for each renewal on a slow machine
	here, there := &shared{s.collection, make(chan func(func(string, []byte) error), 100)}, &shared{s.collection, make(chan func(func(string, []byte) error), 100)}
	opt := s.people
	opt.Collection, opt.News = here, there.onChange
	s.open(t, opt)
	other := &site{tokens: s.tokens, collection: s.collection}
	other.open(t, console.Options{Collection: there, News: here.onChange})
	p := s.page()
	p.signInPerson(t, at)
	q := other.page()
	q.cookie, q.csrf = p.cookie, p.csrf
	until := func(what string, reached func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); !reached(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	until("the other server does not know the session", func() bool { return q.request("POST", "/v1/x", "").Code == 200 })
	streamed := make(chan string, 1)
	go func() { streamed <- q.request("GET", "/v1/stream", "").Body.String() }()
	until("nothing was renewed", func() bool { return at.Renewals.Load() >= 2 })
	for name, page := range map[string]*page{"the server of the sign-in": p, "the other one": q} {
		if w := page.request("POST", "/v1/x", ""); w.Code != 200 {
			t.Errorf("after the renewals, at %s: %d %s", name, w.Code, w.Body)
		}
	}
	select {
	case got := <-streamed:
		t.Fatalf("the stream at the other server ended at a renewal: %s", got)
	default:
	}
	at.Revoked.Store(true)
	if got := <-streamed; !strings.Contains(got, "sign in again") {
		t.Errorf("the stream ended with %q", got)
	}
	until("the session continues at the other server", func() bool { return q.request("POST", "/v1/x", "").Code == 401 })
}

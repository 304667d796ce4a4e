package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"hutch"
	"hutch/internal/auth"
)

const audience = "https://hutch.example.com/mcp"

// provider is an OpenID Connect provider with only the parts that a resource server uses.
type provider struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	asked atomic.Int64 // number of requests for the keys
	down  atomic.Bool
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL, "token_endpoint": p.URL, "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	})
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// token returns a token for ada with some claims changed.
func (p *provider) token(t testing.TB, change map[string]any) string {
	t.Helper()
	return sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: "one"}}, p.claims(change))
}

func (p *provider) claims(change map[string]any) map[string]any {
	c := map[string]any{
		"iss": p.URL, "sub": "ada", "aud": audience, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"scope": "openid hutch:read hutch:exec admin", "preferred_username": "ada.l",
	}
	maps.Copy(c, change)
	return c
}

func sign(t testing.TB, key jose.SigningKey, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(claims)
	signed, err := s.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

func openWith(t testing.TB, p *provider) *auth.Registry {
	t.Helper()
	issuer, err := auth.NewIssuer(auth.IssuerOptions{URL: p.URL, Audience: audience})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, auth.Options{Issuer: issuer})
}

func TestPeople(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	r := openWith(t, p)
	who, err := r.Check(t.Context(), p.token(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if who.Owner != p.URL+"#ada" || who.Name != "ada.l" || !slices.Equal(who.Scopes, []hutch.Scope{"read", "exec"}) || who.Limits != auth.Defaults() {
		t.Errorf("%+v", who)
	}
	ctx, release := who.Hold(t.Context())
	defer release()
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Hour {
		t.Errorf("held until %v", end)
	}
	if who, err := r.Check(t.Context(), p.token(t, map[string]any{"sub": "bob", "scope": "openid", "preferred_username": "b\nob"})); err != nil || who.Has(hutch.Scopes...) || who.Name != "bob" {
		t.Errorf("%+v, %v", who, err)
	}
}

func TestPeopleRefused(t *testing.T) {
	t.Parallel()
	p, other := newProvider(t), newProvider(t)
	r := openWith(t, p)
	good := p.token(t, nil)
	if _, err := r.Check(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(good, ".")
	body, _, _ := strings.Cut(rest, ".")
	stranger := jose.JSONWebKey{Key: other.key, KeyID: "one"}
	for name, token := range map[string]string{
		"expired":               p.token(t, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}),
		"without an end":        p.token(t, map[string]any{"exp": nil}),
		"not yet":               p.token(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"for another":           p.token(t, map[string]any{"aud": "https://other.example.com"}),
		"for nobody":            p.token(t, map[string]any{"aud": nil}),
		"of another":            p.token(t, map[string]any{"iss": other.URL}),
		"of nobody":             p.token(t, map[string]any{"sub": ""}),
		"a subject without end": p.token(t, map[string]any{"sub": strings.Repeat("x", 300)}),
		"another's key":         sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: stranger}, p.claims(nil)),
		"our key as a password": sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: []byte(strings.Repeat("k", 32))}, p.claims(nil)),
		"unsigned":              "eyJhbGciOiJub25lIn0." + body + ".",
		"signature moved":       head + "." + body + "." + strings.Repeat("A", 86),
		"no JWT":                "a.b.c",
		"long":                  strings.Repeat("x", 1<<20) + ".b.c",
	} {
		if _, err := r.Check(t.Context(), token); hutch.KindOf(err) != hutch.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Tokens with made-up keys do not cause a request to the provider each.
func TestUnknownKeysAreAskedForSparingly(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	r := openWith(t, p)
	if _, err := r.Check(t.Context(), p.token(t, nil)); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		key := jose.JSONWebKey{Key: p.key, KeyID: hutch.NewID("k")}
		if _, err := r.Check(t.Context(), sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: key}, p.claims(nil))); err == nil {
			t.Fatal("a made-up key was taken")
		}
	}
	if n := p.asked.Load(); n > 2 {
		t.Errorf("the provider was asked %d times", n)
	}
	if _, err := r.Check(t.Context(), p.token(t, nil)); err != nil {
		t.Errorf("a good token, after that: %v", err)
	}
}

// If the provider is down, the error does not blame the client, and other tokens still work.
func TestProviderDown(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.down.Store(true)
	r := openWith(t, p)
	own := create(t, r, hutch.TokenRequest{Name: "own"})
	_, err := r.Check(t.Context(), p.token(t, nil))
	wantKind(t, hutch.Unavailable, err)
	if _, err := r.Check(t.Context(), own.Secret); err != nil {
		t.Error(err)
	}
}

func TestIssuerOptions(t *testing.T) {
	t.Parallel()
	for _, opt := range []auth.IssuerOptions{{}, {URL: "https://id.example.com"}, {URL: "id", Audience: audience}, {URL: "https://id.example.com#x", Audience: audience}} {
		if _, err := auth.NewIssuer(opt); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%+v: %v", opt, err)
		}
	}
	i, err := auth.NewIssuer(auth.IssuerOptions{URL: "https://id.example.com", Audience: audience})
	if err != nil || i.MetadataURL() != "https://hutch.example.com/.well-known/oauth-protected-resource/mcp" || i.Metadata()["resource"] != audience {
		t.Errorf("%v, %v", i.MetadataURL(), err)
	}
}

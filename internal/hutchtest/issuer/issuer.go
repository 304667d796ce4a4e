// Package issuer is an OpenID Connect issuer for tests: it has a sign-in page, checks requests, and signs tokens with
// its own key.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Id and secret of the only client that the issuer accepts.
const (
	Client = "hutch-console"
	Secret = "the secret + of: the client"
)

// Issuer is a running issuer. Its fields can be set before it is used.
type Issuer struct {
	*httptest.Server
	// Redirect is the only URL to which browsers are sent back.
	Redirect string
	// Lifetime is the lifetime of the issuer's tokens; default an hour.
	Lifetime time.Duration
	// Scope is the scope that the issuer grants; default the requested one.
	Scope string
	// Change, when set, changes the claims of each ID token.
	Change func(claims map[string]any)
	// Answer, when set, can change each answer that contains tokens.
	Answer func(answer map[string]any)
	// Down makes the issuer break off all requests. Revoked makes it refuse all renewals.
	Down, Revoked atomic.Bool
	// Renewals and Ends count requests for a renewal and for the end of a session.
	Renewals, Ends atomic.Int64

	key *ecdsa.PrivateKey

	mu    sync.Mutex
	codes map[string]url.Values // requests, by their code
}

// New starts an issuer that ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{key: key, codes: map[string]url.Values{}, Lifetime: time.Hour}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.describe)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", i.ask)
	mux.HandleFunc("POST /authorize", i.decide)
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /end", i.end)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.Down.Load() {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *Issuer) describe(w http.ResponseWriter, _ *http.Request) {
	json.NewEncoder(w).Encode(map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "end_session_endpoint": i.URL + "/end",
		"id_token_signing_alg_values_supported": []string{"ES256"}, "scopes_supported": []string{"openid", "offline_access"}, "authorization_response_iss_parameter_supported": true,
	})
}

// ask is the page on which a person signs in.
func (i *Issuer) ask(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != Client || q.Get("redirect_uri") != i.Redirect || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" || q.Get("nonce") == "" {
		http.Error(w, "the request of the client is wrong: "+q.Encode(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Issuer</title><link rel="icon" href="data:,"><h1>Who are you?</h1><form method="post" action="/authorize?%s"><button name="do" value="ada">I am Ada</button> <button name="do" value="">Cancel</button></form>`, html.EscapeString(q.Encode()))
}

// decide sends the browser back with a code, or with an error if the person refuses.
func (i *Issuer) decide(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back := url.Values{"state": {q.Get("state")}, "iss": {i.URL}}
	if r.FormValue("do") == "" {
		back.Set("error", "access_denied")
	} else {
		back.Set("code", i.Code(q))
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}

// Code returns a code for a request of the client, as if a person had signed in.
func (i *Issuer) Code(asked url.Values) string {
	code := rand.Text()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes[code] = asked
	return code
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	secret, _ = url.QueryUnescape(secret)
	if id != Client || secret != Secret {
		refuse(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	code := r.FormValue("code")
	i.mu.Lock()
	asked := i.codes[code]
	delete(i.codes, code)
	i.mu.Unlock()
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	switch kind := r.FormValue("grant_type"); {
	case kind == "refresh_token" && r.FormValue("refresh_token") == "again" && !i.Revoked.Load():
		i.Renewals.Add(1)
		asked = url.Values{"scope": {"openid hutch:read hutch:exec"}}
	case kind == "authorization_code" && asked != nil && r.FormValue("redirect_uri") == i.Redirect && base64.RawURLEncoding.EncodeToString(challenge[:]) == asked.Get("code_challenge"):
	default:
		refuse(w, http.StatusBadRequest, "invalid_grant")
		return
	}
	claims := map[string]any{"iss": i.URL, "sub": "ada", "aud": Client, "exp": time.Now().Add(i.Lifetime).Unix(), "iat": time.Now().Unix(), "preferred_username": "ada.l"}
	if nonce := asked.Get("nonce"); nonce != "" {
		claims["nonce"] = nonce
	}
	if i.Change != nil {
		i.Change(claims)
	}
	scope := i.Scope
	if scope == "" {
		scope = asked.Get("scope")
	}
	answer := map[string]any{"access_token": "an opaque token", "token_type": "Bearer", "expires_in": int(i.Lifetime / time.Second), "refresh_token": "again", "id_token": i.Sign(claims), "scope": scope}
	if i.Answer != nil {
		i.Answer(answer)
	}
	maps.DeleteFunc(answer, func(_ string, v any) bool { return v == nil })
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, status int, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": name})
}

// Sign signs claims with the issuer's key.
func (i *Issuer) Sign(claims map[string]any) string {
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "one"}}, nil)
	if err != nil {
		panic(err) // cannot happen: the issuer's own key is valid
	}
	text, _ := json.Marshal(claims)
	signed, err := s.Sign(text)
	if err != nil {
		panic(err)
	}
	compact, _ := signed.CompactSerialize()
	return compact
}

// end ends the session of a person at the issuer, and sends the browser back.
func (i *Issuer) end(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if _, err := jose.ParseSigned(q.Get("id_token_hint"), []jose.SignatureAlgorithm{jose.ES256}); err != nil || q.Get("client_id") != Client {
		http.Error(w, "nobody is named who signs out", http.StatusBadRequest)
		return
	}
	i.Ends.Add(1)
	http.Redirect(w, r, q.Get("post_logout_redirect_uri"), http.StatusSeeOther)
}

package openid

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest/issuer"
)

const redirect = "http://hutch.localhost:7700/console/oidc/callback"

// newClient returns a client of an issuer. change, if not nil, changes the issuer first.
func newClient(t *testing.T, change func(*issuer.Issuer)) (*Client, *issuer.Issuer) {
	t.Helper()
	at := issuer.New(t)
	at.Redirect = redirect
	if change != nil {
		change(at)
	}
	c, err := New(Options{Issuer: at.URL, ClientID: issuer.Client, Secret: issuer.Secret, Redirect: redirect, Scopes: []string{"profile", "hutch:read"}})
	if err != nil {
		t.Fatal(err)
	}
	return c, at
}

// browser begins a sign-in, and returns its cookie and the query with which the issuer sends it back.
func browser(t *testing.T, c *Client, at *issuer.Issuer, to string) (cookie string, back url.Values) {
	t.Helper()
	location, cookie, err := c.Begin(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if strings.Contains(location, cookie) || q.Get("scope") != "openid profile hutch:read offline_access" || q.Get("code_challenge_method") != "S256" {
		t.Fatal(location)
	}
	return cookie, url.Values{"state": {q.Get("state")}, "code": {at.Code(q)}, "iss": {at.URL}}
}

func reason(err error) string {
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		return fmt.Sprint(err)
	}
	return failed.Reason
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	c, at := newClient(t, nil)
	cookie, back := browser(t, c, at, "/sandboxes/x?a=b")
	g, to, err := c.Finish(t.Context(), cookie, back)
	if err != nil || to != "/sandboxes/x?a=b" || g.Subject != "ada" || g.Username != "ada.l" || g.Scope != "openid profile hutch:read offline_access" || !g.Renewable() || time.Until(g.Expires) < 50*time.Minute {
		t.Fatalf("%+v, %q, %v", g, to, err)
	}
	end, err := url.Parse(c.EndURL(g, "/signin"))
	if err != nil || end.Query().Get("post_logout_redirect_uri") != "http://hutch.localhost:7700/signin" || end.Query().Get("id_token_hint") == "" {
		t.Error(end, err)
	}
	g, err = c.Renew(t.Context(), g)
	if err != nil || g.Scope != "openid hutch:read hutch:exec" || at.Renewals.Load() != 1 {
		t.Errorf("%+v, %v", g, err)
	}
	at.Revoked.Store(true)
	if _, err := c.Renew(t.Context(), g); reason(err) != Invalid {
		t.Errorf("renew what was revoked: %v", err)
	}
	at.Down.Store(true)
	if _, err := c.Renew(t.Context(), g); reason(err) != Unavailable {
		t.Errorf("renew while the issuer is down: %v", err)
	}
}

// TestForgedReturns sends browsers back with values of sign-ins that they did not begin.
func TestForgedReturns(t *testing.T) {
	t.Parallel()
	c, at := newClient(t, nil)
	with := func(back url.Values, name string, values ...string) url.Values {
		changed := url.Values{}
		for k, v := range back {
			changed[k] = v
		}
		changed[name] = values
		return changed
	}
	for name, forge := range map[string]func(cookie string, back url.Values) (string, url.Values, string){
		"no cookie": func(_ string, q url.Values) (string, url.Values, string) { return "", q, Stale },
		"a cookie of eve's": func(_ string, q url.Values) (string, url.Values, string) {
			other, _ := browser(t, c, at, "/")
			return other, q, Stale
		},
		"a made-up cookie": func(_ string, q url.Values) (string, url.Values, string) { return "AAAA.9999999999.Lw", q, Stale },
		"another page to go to": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie[:strings.LastIndex(cookie, ".")] + ".Ly9ldmls", q, Stale
		},
		"no state": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "state", ""), Stale
		},
		"another state": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "state", "AAAA"), Stale
		},
		"two states": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "state", q.Get("state"), "x"), Stale
		},
		"two codes": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "code", q.Get("code"), "x"), Stale
		},
		"another issuer": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "iss", "https://evil.example"), Invalid
		},
		"no issuer named": func(cookie string, q url.Values) (string, url.Values, string) { return cookie, with(q, "iss"), Invalid },
		"a code of eve's": func(cookie string, q url.Values) (string, url.Values, string) {
			_, of := browser(t, c, at, "/")
			return cookie, with(q, "code", of.Get("code")), Invalid
		},
		"no code": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "code"), Invalid
		},
		"a made-up code": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "code", "AAAA"), Invalid
		},
		"canceled": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "error", "access_denied"), Refused
		},
		"a failed issuer": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "error", "server_error"), Unavailable
		},
		"another error": func(cookie string, q url.Values) (string, url.Values, string) {
			return cookie, with(q, "error", "invalid_scope"), Invalid
		},
		"a second time": func(cookie string, q url.Values) (string, url.Values, string) {
			if _, _, err := c.Finish(t.Context(), cookie, q); err != nil {
				t.Error(err)
			}
			return cookie, q, Stale
		},
		"a second time, with a new code": func(cookie string, q url.Values) (string, url.Values, string) {
			if _, _, err := c.Finish(t.Context(), cookie, q); err != nil {
				t.Error(err)
			}
			_, of := browser(t, c, at, "/")
			return cookie, with(q, "code", of.Get("code")), Stale
		},
		"too late": func(string, url.Values) (string, url.Values, string) {
			old := fmt.Sprintf("AAAA.%d.Lw", time.Now().Add(-signInTime-time.Second).Unix())
			return old, url.Values{"state": {c.made("state", old)}, "code": {"x"}, "iss": {at.URL}}, Stale
		},
	} {
		cookie, back := browser(t, c, at, "/")
		cookie, back, want := forge(cookie, back)
		if g, _, err := c.Finish(t.Context(), cookie, back); reason(err) != want {
			t.Errorf("%s: %+v, %v, not %s", name, g, err, want)
		}
	}
}

// TestAnswersOfTheIssuer: an ID token is accepted only if the issuer signed it for this client and this sign-in, and if
// it is valid now.
func TestAnswersOfTheIssuer(t *testing.T) {
	t.Parallel()
	claim := func(name string, value any) func(*issuer.Issuer) {
		return func(i *issuer.Issuer) { i.Change = func(c map[string]any) { c[name] = value } }
	}
	answer := func(name string, value any) func(*issuer.Issuer) {
		return func(i *issuer.Issuer) { i.Answer = func(a map[string]any) { a[name] = value } }
	}
	other := issuer.New(t)
	for name, change := range map[string]func(*issuer.Issuer){
		"another nonce":        claim("nonce", "AAAA"),
		"no nonce":             claim("nonce", ""),
		"another audience":     claim("aud", "another"),
		"no audience":          claim("aud", nil),
		"audiences, no party":  claim("aud", []string{issuer.Client, "another"}),
		"another party":        claim("azp", "another"),
		"another issuer":       claim("iss", "https://evil.example"),
		"over":                 claim("exp", time.Now().Add(-time.Minute).Unix()),
		"no end":               claim("exp", nil),
		"no subject":           claim("sub", ""),
		"a long subject":       claim("sub", strings.Repeat("x", 300)),
		"another access token": claim("at_hash", "AAAA"),
		"no ID token":          answer("id_token", nil),
		"nonsense":             answer("id_token", "a.b.c"),
		"no signature":         answer("id_token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."),
		"another issuer's key": func(i *issuer.Issuer) {
			i.Answer = func(a map[string]any) {
				a["id_token"] = other.Sign(map[string]any{"iss": i.URL, "aud": issuer.Client, "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()})
			}
		},
		"an unsigned copy": func(i *issuer.Issuer) {
			i.Answer = func(a map[string]any) {
				a["id_token"] = strings.TrimRight(a["id_token"].(string), "-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
			}
		},
		"no access token given": answer("access_token", nil),
	} {
		c, at := newClient(t, change)
		cookie, back := browser(t, c, at, "/")
		if g, _, err := c.Finish(t.Context(), cookie, back); reason(err) != Invalid {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	c, at := newClient(t, nil)
	at.Down.Store(true)
	if _, _, err := c.Begin(t.Context(), "/"); reason(err) != Unavailable {
		t.Errorf("the issuer is down: %v", err)
	}
	c, at = newClient(t, nil)
	cookie, back := browser(t, c, at, "/")
	at.Down.Store(true)
	if _, _, err := c.Finish(t.Context(), cookie, back); reason(err) != Unavailable {
		t.Errorf("the issuer is down in the middle: %v", err)
	}
	c, at = newClient(t, func(i *issuer.Issuer) { i.Answer = func(a map[string]any) { a["scope"] = nil } })
	cookie, back = browser(t, c, at, "/")
	if g, _, err := c.Finish(t.Context(), cookie, back); err != nil || g.Scope != "" {
		t.Errorf("what was asked for counts as granted: %+v, %v", g, err)
	}
}

// TestRenewedAsAnother: a renewal cannot turn one person into another.
func TestRenewedAsAnother(t *testing.T) {
	t.Parallel()
	c, at := newClient(t, nil)
	cookie, back := browser(t, c, at, "/")
	g, _, err := c.Finish(t.Context(), cookie, back)
	if err != nil {
		t.Fatal(err)
	}
	at.Change = func(claims map[string]any) { claims["sub"] = "eve" }
	if g, err := c.Renew(t.Context(), g); reason(err) != Invalid {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := Options{Issuer: "https://id.example.com", ClientID: "x", Redirect: "https://hutch.example.com/console/oidc/callback"}
	for name, change := range map[string]func(*Options){
		"no client": func(o *Options) { o.ClientID = "" }, "no issuer": func(o *Options) { o.Issuer = "" }, "plain HTTP": func(o *Options) { o.Issuer = "http://id.example.com" },
		"a redirect without TLS": func(o *Options) { o.Redirect = "http://hutch.example.com/x" }, "no redirect": func(o *Options) { o.Redirect = "" }, "a user": func(o *Options) { o.Redirect = "https://a:b@hutch.example.com/" },
	} {
		opt := good
		change(&opt)
		if _, err := New(opt); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	c, err := New(good)
	if err != nil || c.Name() != "id.example.com" || !c.IsHere("HUTCH.example.com") || !c.IsHere("hutch.example.com:443") || c.IsHere("hutch.example.com:444") || c.IsHere("") {
		t.Error(c, err)
	}
}

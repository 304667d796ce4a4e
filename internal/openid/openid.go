// Package openid signs people in with an OpenID Connect issuer: the authorization code flow, with PKCE, state and
// nonce.
//
// A sign-in is one random value, in a cookie of the browser that began it. State, nonce and the verifier of PKCE are
// derived from that value with a key of this process, so the server stores nothing for unfinished sign-ins. The URL
// with code and state is useless without that cookie.
package openid

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"hutch"
	"hutch/internal/netaddr"
)

// Options configure a client. Issuer, ClientID and Redirect are required.
type Options struct {
	Issuer   string // URL, exactly as its tokens contain it
	ClientID string
	Secret   string // secret of the client; "" for a public one
	Redirect string // URL to which the issuer sends browsers back, as registered there
	Name     string // name of the issuer, for people; default its host name
	// Scopes are the scopes to request, in addition to openid. offline_access is added if the issuer supports it.
	Scopes []string
}

// Client is a client of one issuer.
type Client struct {
	opt      Options
	redirect *url.URL
	http     *http.Client
	key      [32]byte // derives state, nonce and verifier from cookies

	mu       sync.Mutex
	issuer   *provider // nil until the issuer has been reached
	refused  error     // why the issuer was not reached
	asked    time.Time
	finished map[string]time.Time // used states
}

// provider is the issuer's metadata.
type provider struct {
	oauth    oauth2.Config
	verifier *oidc.IDTokenVerifier
	end      string // URL where people sign out; "" for none
	named    bool   // the issuer adds its name when it sends a browser back (RFC 9207)
}

// Grant is the issuer's answer about a person who has signed in.
type Grant struct {
	Subject, Username string
	// Scope is the granted scope, separated by spaces. It is empty if the issuer did not report it.
	Scope       string
	AccessToken string
	Expires     time.Time // expiry of the access token

	refresh, idToken string
}

// Renewable reports whether the grant can be renewed without asking the person.
func (g *Grant) Renewable() bool { return g.refresh != "" }

// Reasons why a sign-in fails.
const (
	Refused     = "refused"     // refused by the person or the issuer
	Stale       = "stale"       // not begun in this browser, or too old, or used already
	Invalid     = "invalid"     // the issuer's answer is not valid
	Unavailable = "unavailable" // the issuer does not answer
)

// Error is a failed sign-in.
type Error struct {
	Reason string
	Err    error
}

func (e *Error) Error() string { return "sign in with the OpenID Connect issuer: " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func fail(reason, format string, args ...any) *Error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

const (
	// signInTime is how long a person can take to sign in.
	signInTime = 10 * time.Minute
	// answerTime is how long the issuer can take to answer.
	answerTime = 10 * time.Second
	// between is the shortest time between two tries to reach an issuer that does not answer.
	between = 5 * time.Second
	// maxFinished is the most used states that are remembered, to bound their memory.
	maxFinished = 10_000
	maxSubject  = 255 // the limit of OpenID Connect
)

// New returns a client. The issuer is first contacted at the first sign-in.
func New(opt Options) (*Client, error) {
	if opt.ClientID == "" {
		return nil, hutch.Errorf(hutch.Invalid, "signing in with an issuer needs the id of a client there: give --oidc-client-id")
	}
	from, err := safeURL("--oidc-issuer", opt.Issuer)
	if err != nil {
		return nil, err
	}
	redirect, err := safeURL("--oidc-redirect-url", opt.Redirect)
	if err != nil {
		return nil, err
	}
	opt.Name = cmp.Or(opt.Name, from.Hostname())
	c := &Client{opt: opt, redirect: redirect, finished: map[string]time.Time{}}
	rand.Read(c.key[:]) // never fails: it ends the program instead
	c.http = &http.Client{Timeout: answerTime, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if via[0].Method != http.MethodGet || len(via) > 3 {
			return http.ErrUseLastResponse // do not follow redirects: codes and secrets go only to URLs that the issuer has named
		}
		return nil
	}}
	return c, nil
}

// safeURL parses a URL to which codes and tokens are sent. It must use TLS, or be on this machine.
func safeURL(flag, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && !(u.Scheme == "http" && isLocal(u.Hostname())) {
		return nil, hutch.Errorf(hutch.Invalid, "%s %q is not a URL for signing in: give one with https://, or with http:// and a name of this machine", flag, text)
	}
	return u, nil
}

func isLocal(host string) bool {
	return strings.HasSuffix(host, ".localhost") || netaddr.IsLoopback(host)
}

// Name returns the name of the issuer, for people.
func (c *Client) Name() string { return c.opt.Name }

// Redirect returns the URL to which the issuer sends browsers back.
func (c *Client) Redirect() *url.URL { return c.redirect }

// IsHere reports whether the issuer sends browsers back to host, the host by which a browser now calls the server.
func (c *Client) IsHere(host string) bool {
	return strings.EqualFold(host, c.redirect.Host) || strings.EqualFold(host, net.JoinHostPort(c.redirect.Hostname(), cmp.Or(c.redirect.Port(), "443")))
}

// Begin begins a sign-in. It returns the address to send the browser to, and the cookie to set; to is the page that the
// person sees afterwards.
func (c *Client) Begin(ctx context.Context, to string) (location, cookie string, err error) {
	at, err := c.reach(ctx)
	if err != nil {
		return "", "", err
	}
	cookie = rand.Text() + "." + strconv.FormatInt(time.Now().Unix(), 10) + "." + encode([]byte(to))
	location = at.oauth.AuthCodeURL(c.made("state", cookie), oidc.Nonce(c.made("nonce", cookie)), oauth2.S256ChallengeOption(c.made("verifier", cookie)))
	return location, cookie, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// made derives a value from the cookie of a sign-in; what names the value's purpose.
func (c *Client) made(what, cookie string) string {
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write([]byte(what + " " + cookie))
	return encode(mac.Sum(nil))
}

// Finish ends a sign-in, given the browser's cookie and the query with which the issuer sent the browser back. Its
// error is an *Error.
func (c *Client) Finish(ctx context.Context, cookie string, q url.Values) (g *Grant, to string, err error) {
	if to, err = c.check(cookie, q); err != nil {
		return nil, "", err
	}
	at, err := c.reach(ctx)
	if err != nil {
		return nil, "", err
	}
	if iss := q["iss"]; len(iss) > 0 && iss[0] != c.opt.Issuer || at.named && len(iss) != 1 {
		return nil, "", fail(Invalid, "it is not the issuer %q that sent the browser back, but %.200q", c.opt.Issuer, iss)
	}
	if name := q.Get("error"); name != "" {
		return nil, "", fail(reasonOf(name), "the issuer says %.100q: %.300q", name, q.Get("error_description"))
	}
	t, err := at.oauth.Exchange(c.in(ctx), q.Get("code"), oauth2.VerifierOption(c.made("verifier", cookie)))
	if err != nil {
		return nil, "", failedCall(err)
	}
	id, err := at.verified(c.in(ctx), t, c.opt.ClientID)
	if err != nil {
		return nil, "", err
	}
	if !hmac.Equal([]byte(id.Nonce), []byte(c.made("nonce", cookie))) {
		return nil, "", fail(Invalid, "the ID token has the nonce of another sign-in")
	}
	return grantOf(t, id), to, nil
}

// reasonOf returns the reason for an error code of the issuer.
func reasonOf(name string) string {
	switch name {
	case "access_denied", "login_required", "interaction_required", "consent_required", "account_selection_required":
		return Refused
	case "server_error", "temporarily_unavailable":
		return Unavailable
	}
	return Invalid
}

// check checks that a browser itself began a sign-in, recently, and returns from it for the first time. It returns the
// page that the person requested.
func (c *Client) check(cookie string, q url.Values) (to string, err error) {
	for name, values := range q {
		if len(values) > 1 {
			return "", fail(Stale, "there are several parameters %.40q", name)
		}
	}
	_, rest, _ := strings.Cut(cookie, ".")
	began, wanted, _ := strings.Cut(rest, ".")
	at, err := strconv.ParseInt(began, 10, 64)
	if cookie == "" || err != nil {
		return "", fail(Stale, "the browser has begun no sign-in")
	}
	state := c.made("state", cookie)
	if !hmac.Equal([]byte(state), []byte(q.Get("state"))) {
		return "", fail(Stale, "the state is that of another sign-in")
	}
	if time.Since(time.Unix(at, 0)) > signInTime {
		return "", fail(Stale, "the sign-in began %s ago", time.Since(time.Unix(at, 0)).Round(time.Second))
	}
	if !c.first(state) {
		return "", fail(Stale, "the sign-in is over")
	}
	text, err := base64.RawURLEncoding.DecodeString(wanted)
	if err != nil {
		return "", fail(Stale, "the cookie of the sign-in is damaged")
	}
	return string(text), nil
}

// first reports whether a state is used for the first time.
func (c *Client) first(state string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.finished[state]; ok {
		return false
	}
	for old, at := range c.finished {
		if time.Since(at) > signInTime || len(c.finished) >= maxFinished {
			delete(c.finished, old)
		}
	}
	c.finished[state] = time.Now()
	return true
}

// verified checks the ID token in an answer, and returns it.
func (at *provider) verified(ctx context.Context, t *oauth2.Token, client string) (*oidc.IDToken, error) {
	raw, _ := t.Extra("id_token").(string)
	id, err := at.verifier.Verify(ctx, raw)
	if _, ok := errors.AsType[*url.Error](err); ok {
		return nil, &Error{Unavailable, err}
	}
	if err != nil {
		return nil, &Error{Invalid, err}
	}
	var c struct {
		Party string `json:"azp"`
	}
	if err := id.Claims(&c); err != nil || c.Party != "" && c.Party != client || len(id.Audience) > 1 && c.Party == "" {
		return nil, fail(Invalid, "the ID token is for another client")
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(t.AccessToken); err != nil {
			return nil, &Error{Invalid, err}
		}
	}
	if id.Subject == "" || len(id.Subject) > maxSubject {
		return nil, fail(Invalid, "the ID token has a subject of %d bytes", len(id.Subject))
	}
	return id, nil
}

// grantOf returns the grant in an issuer's answer.
func grantOf(t *oauth2.Token, id *oidc.IDToken) *Grant {
	var c struct {
		Username string `json:"preferred_username"`
	}
	id.Claims(&c) // a claim of another type counts as missing
	g := &Grant{Subject: id.Subject, Username: c.Username, AccessToken: t.AccessToken, Expires: t.Expiry, refresh: t.RefreshToken}
	g.Scope, _ = t.Extra("scope").(string)
	g.idToken, _ = t.Extra("id_token").(string)
	if g.Expires.IsZero() {
		g.Expires = id.Expiry
	}
	return g
}

// Renew gets a new grant for the same person. Its error is an *Error. If the reason is Unavailable, another try can
// succeed.
func (c *Client) Renew(ctx context.Context, old *Grant) (*Grant, error) {
	at, err := c.reach(ctx)
	if err != nil {
		return nil, err
	}
	t, err := at.oauth.TokenSource(c.in(ctx), &oauth2.Token{RefreshToken: old.refresh}).Token()
	if err != nil {
		return nil, failedCall(err)
	}
	g := *old
	g.AccessToken, g.refresh, g.Expires = t.AccessToken, cmp.Or(t.RefreshToken, old.refresh), t.Expiry
	if scope, ok := t.Extra("scope").(string); ok {
		g.Scope = scope
	}
	if raw, ok := t.Extra("id_token").(string); ok {
		id, err := at.verified(c.in(ctx), t, c.opt.ClientID)
		if err != nil {
			return nil, err
		}
		if id.Subject != old.Subject {
			return nil, fail(Invalid, "the new ID token is of another person")
		}
		if g.idToken = raw; g.Expires.IsZero() {
			g.Expires = id.Expiry
		}
	}
	if !g.Expires.After(time.Now()) {
		return nil, fail(Invalid, "the new token ended at %s", g.Expires)
	}
	return &g, nil
}

// failedCall returns the error of a call to the issuer.
func failedCall(err error) *Error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		if refused.Response != nil && refused.Response.StatusCode >= 500 {
			return &Error{Unavailable, fmt.Errorf("the issuer answers with status %d", refused.Response.StatusCode)}
		}
		return fail(Invalid, "the issuer refuses the code or the token: %.100q: %.300q", refused.ErrorCode, refused.ErrorDescription)
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return &Error{Unavailable, err}
	}
	return &Error{Invalid, err}
}

// EndURL returns the URL at which a browser signs out of the issuer, or "" if the issuer has none. The grant is nil if
// it is unknown. Afterwards the person returns to the given path on this server.
func (c *Client) EndURL(g *Grant, path string) string {
	c.mu.Lock()
	at := c.issuer
	c.mu.Unlock()
	if at == nil || at.end == "" {
		return ""
	}
	u, err := url.Parse(at.end)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", c.opt.ClientID)
	q.Set("post_logout_redirect_uri", (&url.URL{Scheme: c.redirect.Scheme, Host: c.redirect.Host, Path: path}).String())
	if g != nil && g.idToken != "" {
		q.Set("id_token_hint", g.idToken)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// in adds c's HTTP client to a context.
func (c *Client) in(ctx context.Context) context.Context { return oidc.ClientContext(ctx, c.http) }

// reach fetches the issuer's metadata, and keeps it after the first success.
func (c *Client) reach(ctx context.Context) (*provider, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.issuer != nil:
		return c.issuer, nil
	case time.Since(c.asked) < between:
		return nil, c.refused
	}
	at, err := c.discover(context.WithoutCancel(ctx)) // so that other browsers that wait do not fail when this one leaves
	c.asked = time.Now()
	if err != nil {
		c.refused = &Error{Unavailable, err}
		return nil, c.refused
	}
	c.issuer = at
	return at, nil
}

func (c *Client) discover(ctx context.Context) (*provider, error) {
	p, err := oidc.NewProvider(c.in(ctx), c.opt.Issuer)
	if err != nil {
		return nil, err
	}
	var d struct {
		End     string   `json:"end_session_endpoint"`
		Named   bool     `json:"authorization_response_iss_parameter_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Scopes  []string `json:"scopes_supported"`
	}
	if err := p.Claims(&d); err != nil {
		return nil, err
	}
	for what, text := range map[string]string{"authorization": p.Endpoint().AuthURL, "token": p.Endpoint().TokenURL, "end of session": cmp.Or(d.End, c.opt.Issuer)} {
		if _, err := safeURL("the issuer's URL of "+what, text); err != nil {
			return nil, err
		}
	}
	scopes := append([]string{oidc.ScopeOpenID}, c.opt.Scopes...)
	if slices.Contains(d.Scopes, oidc.ScopeOfflineAccess) && !slices.Contains(scopes, oidc.ScopeOfflineAccess) {
		scopes = append(scopes, oidc.ScopeOfflineAccess)
	}
	at := p.Endpoint()
	at.AuthStyle = oauth2.AuthStyleInHeader
	if c.opt.Secret == "" || len(d.Methods) > 0 && !slices.Contains(d.Methods, "client_secret_basic") {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	return &provider{
		oauth: oauth2.Config{ClientID: c.opt.ClientID, ClientSecret: c.opt.Secret, Endpoint: at, RedirectURL: c.opt.Redirect, Scopes: scopes},
		verifier: p.VerifierContext(c.in(ctx), &oidc.Config{ClientID: c.opt.ClientID, SupportedSigningAlgs: []string{
			oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
		}}),
		end: d.End, named: d.Named,
	}, nil
}

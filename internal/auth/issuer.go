package auth

import (
	"cmp"
	"context"
	"errors"
	"hutch/internal/caller"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"hutch"
)

// IssuerOptions configure which tokens of an OpenID Connect provider are accepted.
type IssuerOptions struct {
	// URL is the issuer's URL, exactly as its tokens contain it.
	URL string
	// Audience is the required audience of tokens: the URL of this server's MCP endpoint, as clients know it.
	Audience string
}

// Issuer identifies people by tokens (JWT) that a provider has signed. Each person is an owner. The claim "scope"
// contains Hutch's scopes with the prefix "hutch:".
type Issuer struct {
	opt  IssuerOptions
	http *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil until the provider has been reached
}

// NewIssuer returns an issuer. The first token makes it fetch the provider's keys.
func NewIssuer(opt IssuerOptions) (*Issuer, error) {
	for name, text := range map[string]string{"issuer": opt.URL, "audience": opt.Audience} {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Fragment != "" {
			return nil, hutch.Errorf(hutch.Invalid, "the %s %q of tokens is not a URL: give one such as https://id.example.com", name, text)
		}
	}
	return &Issuer{opt: opt, http: &http.Client{Timeout: 10 * time.Second, Transport: &cachingTransport{next: http.DefaultTransport}}}, nil
}

// claims are the claims that are read in addition to those that the library checks.
type claims struct {
	Scope    string `json:"scope"`
	Username string `json:"preferred_username"`
}

// check returns the principal of a token, or the error invalid if the token is not valid.
func (i *Issuer) check(ctx context.Context, token string, limits hutch.TokenLimits) (*caller.Principal, error) {
	verifier, err := i.reach(ctx)
	if err != nil {
		return nil, err
	}
	var fault error // an error in fetching keys, which the library's error does not distinguish
	t, err := verifier.Verify(context.WithValue(ctx, faultKey{}, &fault), token)
	switch {
	case fault != nil:
		return nil, errUnreachable.Because(fault)
	case err != nil:
		return nil, invalid
	}
	var c claims
	if err := t.Claims(&c); err != nil || t.Subject == "" || len(t.Subject) > maxSubject {
		return nil, invalid
	}
	return i.person(t.Subject, c, limits, t.Expiry), nil
}

// person returns the principal of a subject that the issuer has authenticated.
func (i *Issuer) person(subject string, c claims, limits hutch.TokenLimits, expires time.Time) *caller.Principal {
	who := i.opt.URL + "#" + subject // unique, because no issuer's URL contains "#"
	return &caller.Principal{
		ID: who, Owner: who, Name: nameOf(c, subject), Scopes: scopesOf(c.Scope), Limits: limits, Metadata: i.MetadataURL(),
		Expires: expires,
	}
}

// Person returns the principal of a person who signed in with the issuer of this registry. A token that the issuer
// signs for that subject has the same principal. scope is the granted scope.
func (r *Registry) Person(subject, username, scope string, expires time.Time) *caller.Principal {
	return r.opt.Issuer.person(subject, claims{Scope: scope, Username: username}, r.opt.Defaults, expires)
}

const (
	maxSubject = 255   // the limit of OpenID Connect
	maxJWT     = 16384 // bytes
)

// isJWT distinguishes an issuer's tokens from Hutch's by their form.
func isJWT(token string) bool {
	return len(token) <= maxJWT && strings.Count(token, ".") == 2
}

// nameOf returns a name for people to read.
func nameOf(c claims, subject string) string {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if c.Username == "" || len(c.Username) > hutch.MaxID || strings.ContainsFunc(c.Username, odd) {
		return subject
	}
	return c.Username
}

func scopesOf(claim string) []hutch.Scope {
	given := strings.Fields(claim)
	return slices.DeleteFunc(slices.Clone(hutch.Scopes), func(s hutch.Scope) bool {
		return !slices.Contains(given, caller.ScopePrefix+string(s))
	})
}

// reach fetches the provider's configuration, and keeps it after the first success.
func (i *Issuer) reach(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, i.http), i.opt.URL)
	if err != nil {
		return nil, errUnreachable.Because(err)
	}
	var d struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&d); err != nil {
		return nil, errUnreachable.Because(err)
	}
	remote := oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), i.http), d.Keys)
	i.verifier = oidc.NewVerifier(i.opt.URL, keys{remote}, &oidc.Config{ClientID: i.opt.Audience, SupportedSigningAlgs: []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
	}})
	return i.verifier, nil
}

var errUnreachable = hutch.Errorf(hutch.Unavailable, "whose the token is cannot be checked now: the issuer does not answer; try again in a few seconds").With("retryAfter", 10)

// keys are the provider's signing keys.
type keys struct{ remote oidc.KeySet }

type faultKey struct{}

// VerifySignature implements oidc.KeySet. It records in the context when keys cannot be fetched. Keys that were
// fetched a moment ago are not fetched again.
func (k keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, token)
	if _, ok := errors.AsType[*url.Error](err); ok && !errors.Is(err, errJustAsked) {
		*ctx.Value(faultKey{}).(*error) = err
	}
	return payload, err
}

// Metadata returns the document that tells MCP clients which provider issues tokens (RFC 9728).
func (i *Issuer) Metadata() map[string]any {
	var scopes []string
	for _, s := range hutch.Scopes {
		scopes = append(scopes, caller.ScopePrefix+string(s))
	}
	return map[string]any{
		"resource": i.opt.Audience, "authorization_servers": []string{i.opt.URL},
		"scopes_supported": scopes, "bearer_methods_supported": []string{"header"}, "resource_name": "Hutch",
	}
}

// MetadataPath is the path of the document that Metadata returns. It can also be a prefix, followed by the path of a
// resource.
const MetadataPath = "/.well-known/oauth-protected-resource"

// MetadataURL returns the URL of the document at MetadataPath.
func (i *Issuer) MetadataURL() string {
	u, _ := url.Parse(i.opt.Audience) // NewIssuer has parsed it already
	return u.Scheme + "://" + u.Host + MetadataPath + strings.TrimSuffix(u.Path, "/")
}

// cachingTransport limits requests to the provider by using a recent response again. Otherwise, clients with made-up
// keys in their tokens could make this server send the provider a request for each token.
type cachingTransport struct {
	next http.RoundTripper

	mu    sync.Mutex
	asked map[string]asked // by URL; there are two URLs
}

// asked is when a URL was last fetched, and the error of that fetch.
type asked struct {
	at  time.Time
	err error
}

// between is the shortest time between two fetches of a URL.
const between = 5 * time.Second

var errJustAsked = errors.New("it was asked a moment ago")

// RoundTrip implements http.RoundTripper.
func (s *cachingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.URL.String()
	if last, ok := s.asked[name]; ok && time.Since(last.at) < between {
		return nil, cmp.Or(last.err, errJustAsked)
	}
	resp, err := s.next.RoundTrip(r)
	if s.asked == nil {
		s.asked = map[string]asked{}
	}
	s.asked[name] = asked{time.Now(), err}
	return resp, err
}

package auth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"hutch"
)

// IssuerOptions say whom an OpenID Connect provider vouches for.
type IssuerOptions struct {
	// URL is the issuer's, as it stands in its tokens.
	URL string
	// Audience is what tokens must be meant for: the URL of this server's MCP,
	// as clients know it.
	Audience string
}

// Issuer knows people by the tokens (JWT) that a provider has signed for them.
// Each person is an owner. What one may do is in the claim "scope", by our
// scopes behind "hutch:".
type Issuer struct {
	opt  IssuerOptions
	http *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // once the provider has been reached
}

// NewIssuer returns an issuer, which is asked for its keys by the first token.
func NewIssuer(opt IssuerOptions) (*Issuer, error) {
	for name, text := range map[string]string{"issuer": opt.URL, "audience": opt.Audience} {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Fragment != "" {
			return nil, hutch.Errorf(hutch.Invalid, "the %s %q of tokens is no URL: give one such as https://id.example.com", name, text)
		}
	}
	return &Issuer{opt: opt, http: &http.Client{Timeout: 10 * time.Second, Transport: &sparing{next: http.DefaultTransport}}}, nil
}

// scopePrefix begins our scopes among those of others.
const scopePrefix = "hutch:"

// claims are what we read of a token beside what the library checks.
type claims struct {
	Scope    string `json:"scope"`
	Username string `json:"preferred_username"`
}

// check returns whose a token is; for none of the issuer's, invalid.
func (i *Issuer) check(ctx context.Context, token string, limits hutch.TokenLimits) (*Principal, error) {
	verifier, err := i.reach(ctx)
	if err != nil {
		return nil, err
	}
	var fault error // with the keys, which the library's error does not tell apart
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
	who := i.opt.URL + "#" + t.Subject // in which no issuer has a "#"
	return &Principal{
		ID: who, Owner: who, Name: nameOf(c, t.Subject), Scopes: scopesOf(c.Scope), Limits: limits, Metadata: i.MetadataURL(),
		expires: t.Expiry, life: context.Background(),
	}, nil
}

const (
	maxSubject = 255   // as OpenID Connect has it
	maxJWT     = 16384 // bytes
)

// isJWT tells tokens of an issuer from ours at a glance.
func isJWT(token string) bool {
	return len(token) <= maxJWT && strings.Count(token, ".") == 2
}

// nameOf is for people to read.
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
		return !slices.Contains(given, scopePrefix+string(s))
	})
}

// reach asks the provider where its keys are, until it has answered once.
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

// keys are the provider's.
type keys struct{ remote oidc.KeySet }

type faultKey struct{}

// VerifySignature implements oidc.KeySet. Keys that could not be had are noted
// in the context; those of a moment ago are as good as new ones.
func (k keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, token)
	if _, ok := errors.AsType[*url.Error](err); ok && !errors.Is(err, errJustAsked) {
		*ctx.Value(faultKey{}).(*error) = err
	}
	return payload, err
}

// Metadata is what MCP clients ask for to learn who gives out tokens (RFC 9728).
func (i *Issuer) Metadata() map[string]any {
	var scopes []string
	for _, s := range hutch.Scopes {
		scopes = append(scopes, scopePrefix+string(s))
	}
	return map[string]any{
		"resource": i.opt.Audience, "authorization_servers": []string{i.opt.URL},
		"scopes_supported": scopes, "bearer_methods_supported": []string{"header"}, "resource_name": "Hutch",
	}
}

// MetadataPath is where that is served, also with the path of a resource below.
const MetadataPath = "/.well-known/oauth-protected-resource"

// MetadataURL is where clients find it.
func (i *Issuer) MetadataURL() string {
	u, _ := url.Parse(i.opt.Audience) // NewIssuer has
	return u.Scheme + "://" + u.Host + MetadataPath + strings.TrimSuffix(u.Path, "/")
}

// sparing keeps those who send tokens with made-up keys from having us ask the
// provider for each: what was asked a moment ago is not asked again.
type sparing struct {
	next http.RoundTripper

	mu    sync.Mutex
	asked map[string]asked // by URL, of which there are two
}

// asked is when a URL was asked for, and what for an error that had.
type asked struct {
	at  time.Time
	err error
}

// between is the time from one request of a URL to the next.
const between = 5 * time.Second

var errJustAsked = errors.New("it was asked a moment ago")

// RoundTrip implements http.RoundTripper.
func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
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

package daemon

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/coding"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/execute"
	"hutch/internal/console"
	"hutch/internal/listen"
	"hutch/internal/openid"
	"hutch/internal/watchlink"
)

// openConsole opens the page for browsers. A server of conversations has its own page.
func (d *Daemon) openConsole(ctx context.Context) (err error) {
	if d.cfg.Conversations.Only {
		return nil
	}
	people, err := d.openSignIn()
	if err != nil {
		return err
	}
	d.console, err = console.Open(ctx, console.Options{
		People: people, Person: d.person, Host: d.cfg.Console,
		Tokens: d.tokens, Collection: d.store.Collection("sessions"), Observer: d.observers, Previews: d.previewURL("*"), Version: d.cfg.Version, Log: d.log, Model: d.cfg.Questions.model(), SSH: d.ssh != nil,
		News:   d.newsOf("sessions"),
		Count:  d.countRequest,
		Client: func(r *http.Request) netip.Addr { addr, _ := d.clientOf(r); return addr },
		Secure: d.isProxiedTLS,
	})
	return err
}

// openSignIn makes the client for signing in with the issuer; nil if none is configured.
func (d *Daemon) openSignIn() (*openid.Client, error) {
	opt := d.cfg.SignIn
	if opt.ClientID == "" {
		return nil, nil
	}
	if d.people == nil {
		return nil, hutch.Errorf(hutch.Invalid, "there is no issuer to sign in with: give --oidc-issuer and --oidc-audience beside --oidc-client-id")
	}
	opt.Issuer = d.cfg.Issuer.URL
	if opt.Redirect == "" {
		at, _ := url.Parse(d.cfg.Issuer.Audience) // auth.NewIssuer has parsed it already
		opt.Redirect = at.Scheme + "://" + at.Host + console.DonePath
	}
	if opt.Scopes == nil {
		opt.Scopes = []string{"profile"}
		for _, s := range hutch.Scopes {
			if s != hutch.ScopeAdmin { // some issuers grant every requested scope
				opt.Scopes = append(opt.Scopes, caller.ScopePrefix+string(s))
			}
		}
	}
	return openid.New(opt)
}

// person turns the issuer's answer about a person into a principal. If the answer lacks the granted scopes, they are
// read from the access token, provided that this is a token for this server.
func (d *Daemon) person(ctx context.Context, g *openid.Grant) *caller.Principal {
	who := d.tokens.Person(g.Subject, g.Username, g.Scope, g.Expires)
	if g.Scope == "" {
		if same, err := d.tokens.Check(ctx, g.AccessToken); err == nil && same.ID == who.ID {
			who.Scopes = same.Scopes
		}
	}
	return who
}

// openLinks loads the links for watching terminals.
func (d *Daemon) openLinks(ctx context.Context) (err error) {
	d.links, err = watchlink.Open(ctx, watchlink.Options{
		Processes: d.policy, Holder: d.tokens.Holder, Collection: d.store.Collection("watch-links"), Observer: d.observers, Log: d.log,
		Claim: func(ctx context.Context, owner string) bool { return listen.Claim(ctx, "viewers "+owner) },
	})
	return err
}

// countRequest counts a request of a principal, and refuses it over the principal's limit.
func (d *Daemon) countRequest(ctx context.Context, who *caller.Principal) error {
	_, err := d.requests.Take(ctx, who.ID, who.Limits.Requests)
	return err
}

// isProxiedTLS reports whether a trusted proxy says that a request came to it over TLS.
func (d *Daemon) isProxiedTLS(r *http.Request) bool {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return r.Header.Get("X-Forwarded-Proto") == "https" && d.cfg.Proxies.Has(from.Addr())
}

// consoleRoutes are the patterns of the routes that a browser can call with its session. The other routes are for
// programs of other products, which only use tokens.
var consoleRoutes = []string{"/v1/", "/v1", coding.Prefix, coding.Prefix + "/", execute.Path, "GET /conversations", "DELETE /conversations/{conversation}"}

// isLost returns the function that reports whether a browser opens a path that the server does not have.
func isLost(mux *http.ServeMux) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if !console.IsLost(r) || e2b.Ours(r) {
			return false
		}
		_, pattern := mux.Handler(r)
		return pattern == "/"
	}
}

// sessions returns the function with which the guard finds the principal of a browser's session.
func (d *Daemon) sessions(mux *http.ServeMux) func(http.ResponseWriter, *http.Request) (*caller.Principal, error) {
	return func(w http.ResponseWriter, r *http.Request) (*caller.Principal, error) {
		if _, pattern := mux.Handler(r); e2b.Ours(r) || !slices.Contains(consoleRoutes, pattern) {
			return nil, nil
		}
		return d.console.Principal(w, r)
	}
}

package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/listen"
	"hutch/internal/preview"
)

// previewURL returns the URL of the preview with a label.
func (d *Daemon) previewURL(label string) string {
	at := d.cfg.Preview
	if at.Scheme == "" {
		scheme, rest, _ := strings.Cut(d.URL(), "://")
		at.Scheme = scheme
		if _, port, err := net.SplitHostPort(rest); err == nil && at.Port() == "" {
			at.Host += ":" + port
		}
	}
	return at.Scheme + "://" + label + "." + at.Host
}

// previews returns a handler that serves previews, and passes all other requests to next.
func (d *Daemon) previews(next http.Handler) *preview.Handler {
	return preview.New(next, d.previewOptions())
}

func (d *Daemon) previewOptions() preview.Options {
	login := d.URL()
	if d.cfg.Conversations.BaseURL != "" {
		login = d.BaseURL()
	}
	return preview.Options{
		Sandboxes: d.everywhere().ports, Domain: d.cfg.Preview.Hostname(), Login: login, Log: d.log,
		Known: func(ctx context.Context, token string) bool {
			_, err := d.tokens.Check(ctx, token)
			return err == nil || !errors.Is(err, hutch.Denied)
		},
		May: d.maySee, Named: d.stillSees, Own: d.isOwn, Client: d.clientOf,
		Claim: func(ctx context.Context, owner string) bool { return listen.Claim(ctx, "previews "+owner) },
	}
}

// isOwn reports whether a host name belongs to the server itself, not to a preview.
func (d *Daemon) isOwn(host string) bool {
	public, _ := url.Parse(d.BaseURL())
	return strings.EqualFold(host, public.Hostname()) || d.cfg.Console != "" && strings.EqualFold(host, d.cfg.Console) || slices.ContainsFunc(d.cfg.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, host) })
}

// clientOf returns the address of a request's client, and whether a proxy reported it. The log names the first
// untrusted proxy.
func (d *Daemon) clientOf(r *http.Request) (netip.Addr, bool) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	if d.cfg.Proxies.Has(from.Addr()) {
		return d.cfg.Proxies.Client(r), true
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		d.untrustedProxy.Do(func() {
			d.log.Warn("a request has X-Forwarded-For and does not come from a proxy that is believed: its clients count as one; see --trusted-proxies", "remote", r.RemoteAddr)
		})
	}
	return from.Addr().Unmap(), false
}

// maySee returns the visitor for a token, if the token can see the sandbox of a preview: it must belong to the
// sandbox's owner, or have a grant.
func (d *Daemon) maySee(ctx context.Context, token string, p hutch.Preview) (v preview.Visitor, ok bool) {
	who, err := d.tokens.Check(ctx, token)
	if err != nil {
		return v, false
	}
	mine, err := d.policy.ValidatePortToken(caller.As(ctx, who), p.SandboxID, p.Port.Port, p.Token)
	if err != nil || !mine {
		return v, false
	}
	life, ok := d.sees(who, p)
	if !ok {
		return v, false
	}
	if kept := d.tokens.Holder(who.Owner); kept != nil && kept.ID == who.ID {
		return d.visitor(kept, life), true
	}
	return preview.Visitor{Hold: holdBoth(who, life), Expires: who.Expires}, true
}

// sees reports whether the sandbox of a preview belongs to the caller or is shared with it. life ends with the grant,
// and is nil for the caller's own sandbox.
func (d *Daemon) sees(who *caller.Principal, p hutch.Preview) (life context.Context, ok bool) {
	if who.Owner == p.Owner {
		return nil, true
	}
	return d.policy.Granted(who.ID, p.Owner, p.SandboxID)
}

// holdBoth returns a function that makes a context end with the caller's token and, unless life is nil, with a grant.
func holdBoth(who *caller.Principal, life context.Context) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, release := who.Hold(ctx)
		ctx, end := caller.Until(ctx, life)
		return ctx, func() { end(); release() }
	}
}

// visitorName is the prefix of a visitor's name. The rest of the name is the owner of the token, empty for the server's
// own token.
const visitorName = "t"

// visitor returns the visitor for a token that sees a sandbox of its own, or one that is shared with it if life is not
// nil.
func (d *Daemon) visitor(who *caller.Principal, life context.Context) preview.Visitor {
	return preview.Visitor{Hold: holdBoth(who, life), Name: visitorName + who.Owner, Proof: d.tokens.Sum(who.Owner), Expires: who.Expires}
}

// linkHolder returns the token whose end also ends the links to an owner's ports. For the server itself on a shared
// database, there is no such token, because each server can have a different token, and all servers must accept the
// link. Such a link ends only when it expires.
func (d *Daemon) linkHolder(owner string) (name string, proof []byte) {
	who := d.tokens.Holder(owner)
	if who == nil || owner == "" && d.store.Shared() {
		return "", nil
	}
	v := d.visitor(who, nil)
	return v.Name, v.Proof
}

// stillSees returns the visitor with a name, if its token can still see the sandbox of a preview. Visitors ask for
// every part of a page, so this is not a call of a verb: it is neither counted nor recorded.
func (d *Daemon) stillSees(name string, p hutch.Preview) (v preview.Visitor, ok bool) {
	owner, ok := strings.CutPrefix(name, visitorName)
	who := d.tokens.Holder(owner)
	if !ok || who == nil {
		return v, false
	}
	life, ok := d.sees(who, p)
	if !ok {
		return v, false
	}
	return d.visitor(who, life), true
}

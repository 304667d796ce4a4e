package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/listen"
	"hutch/internal/preview"
)

// previewConfig is where exposed ports are shown.
type previewConfig struct {
	domain string // or a URL with one
	at     url.URL
}

func (p *previewConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&p.domain, "preview-domain", "localhost", "domain whose subdomains show exposed ports: a name, for this server's own scheme and port, or a URL as seen behind a proxy, such as https://preview.example.com")
}

func (p *previewConfig) check() error {
	at, err := url.Parse(p.domain)
	if err == nil && at.Scheme == "" {
		at, err = url.Parse("//" + p.domain)
	}
	name := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(at.Hostname(), "*"), "."))
	switch {
	case err != nil || name == "" || strings.Trim(at.Path, "/") != "" || net.ParseIP(name) != nil,
		at.Scheme != "" && at.Scheme != "http" && at.Scheme != "https":
		return usageError{fmt.Errorf("--preview-domain is %q: give a domain such as preview.example.com, or https:// before one", p.domain)}
	}
	p.at = url.URL{Scheme: at.Scheme, Host: name}
	if at.Port() != "" {
		p.at.Host += ":" + at.Port()
	}
	return nil
}

// previewURL is where a label is shown.
func (s *server) previewURL(label string) string {
	at := s.preview.at
	if at.Scheme == "" {
		scheme, rest, _ := strings.Cut(s.url(), "://")
		at.Scheme = scheme
		if _, port, err := net.SplitHostPort(rest); err == nil && at.Port() == "" {
			at.Host += ":" + port
		}
	}
	return at.Scheme + "://" + label + "." + at.Host
}

// previews puts the previews in front of the rest of the server.
func (s *server) previews(next http.Handler) *preview.Handler {
	login := s.url()
	if s.talk.baseURL != "" {
		login = s.base()
	}
	return preview.New(next, preview.Options{
		Sandboxes: s.engine, Domain: s.preview.at.Hostname(), Login: login, Log: s.log,
		Known: func(ctx context.Context, token string) bool {
			_, err := s.tokens.Check(ctx, token)
			return err == nil || !errors.Is(err, hutch.Denied)
		},
		May: s.maySee, Own: s.isOwn, Client: s.clientOf,
		Claim: func(ctx context.Context, owner string) bool { return listen.Claim(ctx, "previews "+owner) },
	})
}

// isOwn reports whether a host name is the server's own, beside those of
// previews.
func (s *server) isOwn(host string) bool {
	public, _ := url.Parse(s.base())
	return strings.EqualFold(host, public.Hostname()) || slices.ContainsFunc(s.hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, host) })
}

// clientOf is the address that a request comes from, and whether a proxy said so.
// One that says so and is not believed is named in the log, once.
func (s *server) clientOf(r *http.Request) (netip.Addr, bool) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	if s.proxies.Has(from.Addr()) {
		return s.proxies.Client(r), true
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		s.unbelieved.Do(func() {
			s.log.Warn("a request has X-Forwarded-For and does not come from a proxy that is believed: its clients count as one; see --trusted-proxies", "remote", r.RemoteAddr)
		})
	}
	return from.Addr().Unmap(), false
}

// maySee reports whether a token may see the sandbox of a preview: its owner's,
// or one that it is shared with.
func (s *server) maySee(ctx context.Context, token string, p hutch.Preview) bool {
	who, err := s.tokens.Check(ctx, token)
	if err != nil {
		return false
	}
	mine, err := s.policy.ValidatePortToken(auth.With(ctx, who), p.SandboxID, p.Port.Port, p.Token)
	return err == nil && mine
}

package daemon

import (
	"context"
	"net/http"
	"net/netip"
	"slices"

	"hutch/internal/caller"
	"hutch/internal/coding"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/execute"
	"hutch/internal/console"
)

// openConsole opens the page for browsers. A server of conversations has a page of its own.
func (d *Daemon) openConsole(ctx context.Context) (err error) {
	if d.cfg.Conversations.Only {
		return nil
	}
	d.console, err = console.Open(ctx, console.Options{
		Tokens: d.tokens, Shelf: d.store.Shelf("sessions"), Observer: d.observers, Previews: d.previewURL("*"), Version: d.cfg.Version, Log: d.log,
		Count:  d.countRequest,
		Client: func(r *http.Request) netip.Addr { addr, _ := d.clientOf(r); return addr },
		Secure: d.isProxiedTLS,
	})
	return err
}

// countRequest counts a request of a principal, and refuses it over the principal's limit.
func (d *Daemon) countRequest(ctx context.Context, who *caller.Principal) error {
	_, err := d.requests.Take(ctx, who.ID, who.Limits.Requests)
	return err
}

// isProxiedTLS reports whether a proxy that is trusted says that a request came to it over TLS.
func (d *Daemon) isProxiedTLS(r *http.Request) bool {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return r.Header.Get("X-Forwarded-Proto") == "https" && d.cfg.Proxies.Has(from.Addr())
}

// consoleRoutes are the patterns of the routes that a browser calls by its session. The others are for programs of
// other products, which know tokens only.
var consoleRoutes = []string{"/v1/", "/v1", coding.Prefix, coding.Prefix + "/", execute.Path, "GET /conversations", "DELETE /conversations/{conversation}"}

// sessions returns what the guard asks for the principal of a browser's session.
func (d *Daemon) sessions(mux *http.ServeMux) func(http.ResponseWriter, *http.Request) (*caller.Principal, error) {
	return func(w http.ResponseWriter, r *http.Request) (*caller.Principal, error) {
		if _, pattern := mux.Handler(r); e2b.Ours(r) || !slices.Contains(consoleRoutes, pattern) {
			return nil, nil
		}
		return d.console.Principal(w, r)
	}
}

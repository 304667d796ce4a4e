package console

import (
	"net"
	"net/http"
	"net/url"

	"hutch/internal/netaddr"
)

// A browser sends a cookie to every port of a host name. On a person's machine, other programs listen on other ports of
// 127.0.0.1 and localhost, for example ports of a sandbox that `hutch forward` makes available. So the console has its
// own name there. Browsers resolve names below localhost to their own machine.

// hasOwnHost reports whether a browser opens the page under a name that other programs of the machine share. It returns
// true only for requests that browsers mark as opening a page: programs get the same answers under every name.
func (h *Handler) hasOwnHost(r *http.Request) bool {
	if h.opt.Host == "" || h.isSecure(r) || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
		return false
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if r.Header.Get(name) != "" {
			return false // the browser called a proxy by its name
		}
	}
	name, _ := netaddr.SplitHost(r.Host)
	return netaddr.IsLoopback(name)
}

// toOwnHost redirects a browser to the console's own name, and ends a session that an earlier version left at the other
// name.
func (h *Handler) toOwnHost(w http.ResponseWriter, r *http.Request) {
	u := url.URL{Scheme: "http", Host: h.opt.Host, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	if _, port := netaddr.SplitHost(r.Host); port != "" {
		u.Host = net.JoinHostPort(h.opt.Host, port)
	}
	gone := newCookie(false, "")
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	harden(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Add("Vary", "Accept, Sec-Fetch-Mode, Sec-Fetch-Dest")
	http.Redirect(w, r, u.String(), http.StatusFound)
}

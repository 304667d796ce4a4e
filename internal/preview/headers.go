package preview

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/credential"
)

const (
	// cookieName is the cookie that opens a private preview on its own host.
	cookieName = "hutch-preview"
	// tokenHeader carries a token of this server when Authorization is meant for the program inside.
	tokenHeader = "Hutch-Token"
)

// ourCookies are cookies of this server, which no program in a sandbox sees or sets.
var ourCookies = []string{cookieName, credential.SessionCookie, credential.HostSessionCookie}

// rewrite addresses a request to the server in the sandbox. It keeps the host that the client used, so that redirects
// and links lead back here, unless the preview sets a host for the server.
func (h *Handler) rewrite(pr *httputil.ProxyRequest) {
	v := visitOf(pr.In)
	u := pr.Out.URL
	u.Scheme, u.Host, u.RawQuery = string(cmp.Or(v.Protocol, hutch.HTTPPort)), v.label, pr.In.URL.RawQuery
	if v.prefix != "" {
		u.Path = strings.TrimPrefix(u.Path, v.prefix)
		u.RawPath = strings.TrimPrefix(u.RawPath, v.prefix)
		pr.Out.Header.Set("X-Forwarded-Prefix", v.prefix)
	}
	pr.Out.Host = cmp.Or(v.Host, pr.In.Host)
	if _, proxied := h.opt.Client(pr.In); proxied {
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	}
	pr.SetXForwarded()
	pr.Out.Header.Set("X-Forwarded-Proto", v.scheme())
}

// scheme returns the scheme of the port's URL.
func (v *visit) scheme() string {
	scheme, _, _ := strings.Cut(v.URL, ":")
	return scheme
}

// hide removes the daemon's credentials from a request. It returns false if the client has sent too many tokens that
// are not of this server.
func (h *Handler) hide(r *http.Request) bool {
	r.Header.Del(tokenHeader)
	over, addr := false, h.client(r)
	credential.Strip(r, func(token string) bool {
		if token == "" {
			return false
		}
		short := isGuessable(token)
		if over = over || short && h.foreign.Over(addr); over || h.known(r.Context(), token) {
			return true
		}
		if short {
			h.foreign.Wrong(addr, token)
		}
		return false
	})
	if over {
		return false
	}
	if visitOf(r).prefix != "" {
		r.Header.Del("Cookie") // the cookies belong to the daemon's host
		return true
	}
	if lines := r.Header["Cookie"]; len(lines) > 0 {
		for i, line := range lines {
			for _, name := range ourCookies {
				line = without(line, name)
			}
			lines[i] = line
		}
		r.Header["Cookie"] = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	}
	return true
}

// isGuessable reports whether a token, in one of its forms, is so short that it can be a guess.
func isGuessable(token string) bool {
	plain, ok := credential.Decoded(token)
	return len(token) < unguessable || ok && len(plain) < unguessable
}

// known reports whether a token, in either of its forms, is one of this server.
func (h *Handler) known(ctx context.Context, token string) bool {
	plain, ok := credential.Decoded(token)
	return h.opt.Known(ctx, token) || ok && h.opt.Known(ctx, plain)
}

// without returns a Cookie header without one cookie.
func without(line, name string) string {
	if !strings.Contains(line, name) {
		return line
	}
	pairs := slices.DeleteFunc(strings.Split(line, ";"), func(pair string) bool {
		key, _, _ := strings.Cut(pair, "=")
		return textproto.TrimString(key) == name
	})
	return strings.TrimSpace(strings.Join(pairs, ";"))
}

// bearer returns the token in the value of an Authorization header, or empty.
func bearer(value string) string {
	scheme, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// hostWideHeaders are the headers of an answer with effects beyond its own host. They change what browsers store for a whole
// domain, how browsers find this host, or where browsers report its later URLs. In the path form, this host is the
// daemon's.
var hostWideHeaders = []string{"Clear-Site-Data", "Alt-Svc", "Public-Key-Pins", "Strict-Transport-Security", "Nel", "Report-To"}

// restrictEffects removes from an answer the headers with effects beyond its own host, and records the answer's length.
func (h *Handler) restrictEffects(resp *http.Response) error {
	v, header := visitOf(resp.Request), resp.Header
	v.length = resp.ContentLength
	for _, name := range hostWideHeaders {
		header.Del(name)
	}
	if v.prefix != "" {
		tamePath(v, resp)
		return nil
	}
	if cookies := header["Set-Cookie"]; len(cookies) > 0 {
		header["Set-Cookie"] = ownCookies(cookies)
	}
	header.Set("Origin-Agent-Cluster", "?1") // no shared document.domain with another preview
	if header.Get("Referrer-Policy") == "" {
		header.Set("Referrer-Policy", "same-origin") // the host name is a secret
	}
	return nil
}

// ownCookies restricts the cookies of an answer to its host.
func ownCookies(lines []string) []string {
	var own []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "=")
		if slices.Contains(ourCookies, textproto.TrimString(name)) {
			continue
		}
		attributes := strings.Split(line, ";")
		kept := slices.DeleteFunc(attributes[1:], func(a string) bool {
			key, _, _ := strings.Cut(a, "=")
			return strings.EqualFold(strings.TrimSpace(key), "domain")
		})
		own = append(own, strings.Join(append(attributes[:1:1], kept...), ";"))
	}
	return own
}

// What follows is for the path form, in which answers come from the daemon's own host.

// UniqueOrigin makes a browser give a page a unique origin: without cookies, storage, service workers, or access to the
// daemon's pages.
const UniqueOrigin = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads"

func isolate(header http.Header, r *http.Request) {
	header.Set("Content-Security-Policy", UniqueOrigin)
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Header.Get("Origin") == "null" { // the Origin of requests from a page with a unique origin
		header.Set("Access-Control-Allow-Origin", "null")
	}
}

func tamePath(v *visit, resp *http.Response) {
	header := resp.Header
	for name := range header {
		if strings.HasPrefix(name, "Access-Control-") {
			header.Del(name)
		}
	}
	for _, name := range []string{"Set-Cookie", "Service-Worker-Allowed", "Www-Authenticate", "X-Content-Type-Options"} {
		header.Del(name)
	}
	if to := header.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		header.Set("Location", v.prefix+to)
	}
	header.Set("Referrer-Policy", "no-referrer") // the path is a secret
}

// answerPreflight allows a page with a unique origin to make any request to its own server.
func answerPreflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Origin") != "null" || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
	w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	w.WriteHeader(http.StatusNoContent)
	return true
}

package console

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/credential"
)

const (
	cookieName = credential.SessionCookie
	// hostCookieName is the name of the cookie over TLS. A browser accepts a cookie with this name's prefix only over
	// TLS and only from the host itself, so other hosts in the server's domain cannot set it.
	hostCookieName = credential.HostSessionCookie

	csrfHeader = "X-Hutch-Csrf"
	// csrfSubprotocol is the prefix of a subprotocol that contains the value of csrfHeader. A page sends the value this
	// way because it cannot set headers when it opens a WebSocket.
	csrfSubprotocol = "hutch.csrf."
	protocols       = "Sec-Websocket-Protocol"
)

// Principal returns the principal of a request's session, for the guard. It returns nil if the request has no session
// or its session has ended, and an error if the request may not use its session.
//
// A browser adds the cookie to every request that it makes, so the cookie is not enough. The request must come from a
// page of this origin. The browser's headers or the value of [cookie.csrf] show that; a request that changes something
// must have the value in any case. Browsers do not run the answers to such requests as a script, frame, style or worker
// of the console's origin, even if a program in a sandbox made the content.
func (h *Handler) Principal(w http.ResponseWriter, r *http.Request) (*caller.Principal, error) {
	c, err := h.cookieOf(r)
	if err != nil || c == nil {
		return nil, err
	}
	if err := h.sameOrigin(r); err != nil {
		return nil, err
	}
	shown, err := takeCSRF(r)
	if err != nil {
		return nil, err
	}
	if err := mayAct(r, shown, c.csrf()); err != nil {
		if !h.sessions.live(r.Context(), *c) {
			err = nil // the session has ended, so its CSRF value no longer matters
		}
		return nil, err
	}
	_, who := h.sessions.use(r.Context(), *c)
	if who != nil {
		hardenCookieAnswer(w.Header())
	}
	return who, nil
}

// hardenCookieAnswer sets headers for an answer to a request with a cookie, because a person may have opened the answer
// as a page.
func hardenCookieAnswer(h http.Header) {
	harden(h)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
}

// mayAct checks the value that a page sends with its cookie, and how the browser will use the answer.
func mayAct(r *http.Request, shown, csrf string) error {
	if shown != "" && shown != csrf {
		return errCSRF
	}
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != ""
	if shown == "" && (changes || r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "") {
		return errCSRF
	}
	if use := r.Header.Get("Sec-Fetch-Dest"); !slices.Contains(harmless, use) {
		return hutch.Errorf(hutch.Denied, "a browser can load nothing from the API as a %.20q: what programs in sandboxes have made must not run as a part of the console", use)
	}
	return nil
}

var errCSRF = hutch.Errorf(hutch.Denied, "the request has the cookie of a session and not, in the header X-Hutch-CSRF, the value that belongs to it: load the session again with GET /console/session").With("csrf", true)

// harmless are the values of Sec-Fetch-Dest with which a browser does not run an answer. The first value is for
// browsers that do not send the header, the second for fetch.
var harmless = []string{"", "empty", "document", "image", "audio", "video", "websocket"}

// sameOrigin checks that a request comes from a page of this origin, as far as the browser's headers show that.
func (h *Handler) sameOrigin(r *http.Request) error {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" {
			return errElsewhere
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) || h.isSecure(r) && u.Scheme != "https" {
			return errElsewhere
		}
	}
	return nil
}

var errElsewhere = hutch.Errorf(hutch.Denied, "only the console's own pages can act for a browser that is signed in to it: programs and other pages send a token")

// isSecure reports whether a request came over TLS, to this server or to a proxy that it trusts.
func (h *Handler) isSecure(r *http.Request) bool {
	return r.TLS != nil || h.opt.Secure != nil && h.opt.Secure(r)
}

// cookieOf returns the cookie of a request, or nil if it has none. Over TLS it uses the cookie name that only this host
// can set. Two cookies with the same name are an error, because one of them is from another host.
func (h *Handler) cookieOf(r *http.Request) (*cookie, error) {
	switch found := h.sentCookies(r); len(found) {
	case 0:
		return nil, nil
	case 1:
		return parseCookie(found[0].Value), nil
	default:
		return nil, hutch.Errorf(hutch.Denied, "the browser sent %d cookies of the name %q, and one of them is not of this server: remove the cookies of this site, and sign in again", len(found), found[0].Name)
	}
}

// sentCookies returns the cookies of a request that have the name of the session cookie, whichever host has set them.
func (h *Handler) sentCookies(r *http.Request) []*http.Cookie {
	found := r.CookiesNamed(hostCookieName)
	if len(found) == 0 && !h.isSecure(r) {
		found = r.CookiesNamed(cookieName)
	}
	return found
}

// maxSent is how many cookies of one name are examined.
const maxSent = 8

// cookiesOf returns those session cookies of a request that have the right format.
func (h *Handler) cookiesOf(r *http.Request) (list []cookie) {
	found := h.sentCookies(r)
	for _, sent := range found[:min(len(found), maxSent)] {
		if c := parseCookie(sent.Value); c != nil {
			list = append(list, *c)
		}
	}
	return list
}

// parseCookie returns the cookie with that value, or nil if it does not have the right format.
func parseCookie(value string) *cookie {
	b, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || len(b) != len(cookie{}) {
		return nil
	}
	c := cookie(b)
	return &c
}

// takeCSRF returns the value that a request sends with its cookie, or "". It removes the value from the list of
// subprotocols, so that no later code puts it into an answer.
func takeCSRF(r *http.Request) (string, error) {
	shown := slices.Clone(r.Header.Values(csrfHeader))
	lines := r.Header[protocols]
	for i, line := range lines {
		lines[i] = strings.Join(slices.DeleteFunc(strings.Split(line, ","), func(name string) bool {
			value, ok := strings.CutPrefix(strings.TrimSpace(name), csrfSubprotocol)
			if ok {
				shown = append(shown, value)
			}
			return ok
		}), ",")
	}
	switch len(shown) {
	case 0:
		return "", nil
	case 1:
		return shown[0], nil
	}
	return "", errCSRF
}

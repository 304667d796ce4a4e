package preview

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"hutch"
)

// loginTime is how long a login is valid.
const loginTime = 12 * time.Hour

// enter lets authorized visitors in, and answers all others. It also answers a visitor with a link, which it replaces
// by a cookie.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request, v *visit) bool {
	if link := linkOf(r); link != "" && v.prefix == "" {
		h.takeLink(w, r, v, link)
		return false
	}
	if v.Access != hutch.PrivatePort || h.tokenOpens(r, v) || v.prefix == "" && cookieOpens(r, v) {
		return true
	}
	h.page(w, r, h.locked(r, v))
	return false
}

// linkOf is the signature in a URL.
func linkOf(r *http.Request) string {
	if !strings.Contains(r.URL.RawQuery, hutch.PortLinkParameter) || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return ""
	}
	return r.URL.Query().Get(hutch.PortLinkParameter)
}

// takeLink sets a cookie in place of a signature and redirects, so that the signature is no longer in the URL, where
// the page and its server could read it.
func (h *Handler) takeLink(w http.ResponseWriter, r *http.Request, v *visit, link string) {
	end, ok := v.Signed(link, time.Now())
	if !ok {
		h.page(w, r, h.locked(r, v))
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: link, Path: "/", Expires: end, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.scheme() == "https",
	})
	to := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: withoutLink(r.URL.RawQuery)}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", "/"+strings.TrimLeft(to.String(), "/"))
	w.WriteHeader(http.StatusSeeOther)
}

func withoutLink(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(part, "="); name != hutch.PortLinkParameter {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// tokenOpens reports whether the request carries a token of this server that can see the preview.
func (h *Handler) tokenOpens(r *http.Request, v *visit) bool {
	for _, token := range []string{r.Header.Get(tokenHeader), bearer(r.Header.Get("Authorization"))} {
		if token != "" && h.opt.May(r.Context(), token, v.Preview) {
			return true
		}
	}
	return false
}

// cookieOpens reports whether the request has a valid cookie and comes from the preview itself, or navigates to it:
// another page, which can be a preview of the same domain, must not act with the cookie.
func cookieOpens(r *http.Request, v *visit) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" || r.Method != http.MethodGet {
			return false
		}
	}
	for _, c := range r.CookiesNamed(cookieName) {
		if _, ok := v.Signed(c.Value, time.Now()); ok {
			return true
		}
	}
	return false
}

// login is a page on the daemon's own host, where people enter their token. It is not on the preview's host: its server
// could imitate the page, and people should not get used to that.
func (h *Handler) login(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyIdleTimeout))
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	form := loginForm{Label: r.FormValue("to"), Path: r.FormValue("path")}
	if !strings.HasPrefix(form.Path, "/") {
		form.Path = "/"
	}
	addr := h.client(r)
	switch {
	case h.guesses.Over(addr):
		h.page(w, r, tooMany)
	case r.Method == http.MethodGet:
		h.askToken(w, http.StatusOK, form)
	case r.Method != http.MethodPost || r.Header.Get("Sec-Fetch-Site") == "cross-site":
		h.page(w, r, unknown)
	default:
		token := r.PostFormValue("token")
		p, ok := h.opt.Sandboxes.Preview(form.Label)
		if !ok || !h.opt.May(r.Context(), token, p) {
			h.guesses.Wrong(addr, form.Label+" "+token)
			form.Wrong = true
			h.askToken(w, http.StatusForbidden, form)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Location", p.URL+linked(form.Path, p.Sign(time.Now().Add(loginTime))))
		w.WriteHeader(http.StatusSeeOther)
	}
}

// linked adds a signature to the query of a path.
func linked(path, signature string) string {
	u, err := url.Parse(path)
	if err != nil || u.Host != "" || u.Scheme != "" {
		u = &url.URL{Path: "/"}
	}
	q := u.Query()
	q.Set(hutch.PortLinkParameter, signature)
	u.RawQuery, u.Fragment = q.Encode(), ""
	return "/" + strings.TrimLeft(u.String(), "/")
}

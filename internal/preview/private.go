package preview

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"hutch"
)

// loginTime is how long a login is valid.
const loginTime = 12 * time.Hour

// enter lets authorized visitors in, and answers all others. It also answers visitors with a link itself, by replacing
// the link with a cookie. The returned context ends with the visitor's right, so a WebSocket or a stream ends with the
// token or the link that opened it. The caller calls leave when the request has been answered. If the visitor is not
// let in, ctx and leave are nil.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request, v *visit) (ctx context.Context, leave context.CancelFunc) {
	if link := linkOf(r); link != "" && v.prefix == "" {
		h.takeLink(w, r, v, link)
		return nil, nil
	}
	if v.Access != hutch.PrivatePort {
		return r.Context(), func() {}
	}
	if who, ok := h.tokenOpens(r, v); ok {
		return who.Hold(r.Context())
	}
	if hold, ok := h.cookieOpens(r, v); ok && v.prefix == "" {
		return hold(r.Context())
	}
	for _, token := range tokensOf(r) {
		h.guesses.Wrong(h.client(r), token)
	}
	h.page(w, r, h.locked(r, v))
	return nil, nil
}

// tokensOf returns the tokens in those headers of a request that can open a preview.
func tokensOf(r *http.Request) []string {
	list := []string{r.Header.Get(tokenHeader), bearer(r.Header.Get("Authorization"))}
	return slices.DeleteFunc(list, func(token string) bool { return token == "" })
}

// linkOf returns the signature in a URL.
func linkOf(r *http.Request) string {
	if !strings.Contains(r.URL.RawQuery, hutch.PortLinkParameter) || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return ""
	}
	return r.URL.Query().Get(hutch.PortLinkParameter)
}

// takeLink sets a cookie in place of a signature and redirects, so that the signature is no longer in the URL, where
// the page and its server could read it.
func (h *Handler) takeLink(w http.ResponseWriter, r *http.Request, v *visit, link string) {
	end, _, ok := h.signed(v, link)
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

// tokenOpens returns the visitor for a token in the request, if that is a token of this server that can see the
// preview.
func (h *Handler) tokenOpens(r *http.Request, v *visit) (who Visitor, ok bool) {
	for _, token := range tokensOf(r) {
		if who, ok := h.opt.May(r.Context(), token, v.Preview); ok {
			return who, true
		}
	}
	return who, false
}

// signed returns when a signature ends, and a function that makes a context end with the right to see the preview. The
// right by a login ends with the token of that login. ok reports whether the signature is valid now.
func (h *Handler) signed(v *visit, signature string) (end time.Time, hold holding, ok bool) {
	hold = context.WithCancel
	end, ok = v.Signed(signature, time.Now(), func(name string) []byte {
		who, ok := h.opt.Named(name, v.Preview)
		if !ok {
			return nil
		}
		hold = who.Hold
		return who.Proof
	})
	return end, hold, ok
}

// holding is a function that returns a context that ends with a right.
type holding = func(context.Context) (context.Context, context.CancelFunc)

// cookieOpens reports whether the request has a valid cookie and comes from the preview itself, or navigates to it:
// other pages, such as other previews of the same domain, must not be able to use the cookie. hold returns a context
// that ends when the cookie is no longer valid.
func (h *Handler) cookieOpens(r *http.Request, v *visit) (hold holding, ok bool) {
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return nil, false
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" || r.Method != http.MethodGet {
			return nil, false
		}
	}
	for _, c := range r.CookiesNamed(cookieName) {
		if end, token, ok := h.signed(v, c.Value); ok {
			return func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, leave := token(ctx)
				ctx, late := context.WithDeadline(ctx, end)
				return ctx, func() { late(); leave() }
			}, true
		}
	}
	return nil, false
}

// login is a page on the daemon's own host, where people enter their token. It is not on the preview's host, because
// the program there could imitate the page, and people should not get used to entering tokens there.
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
		p, err := h.opt.Sandboxes.Preview(form.Label)
		if isUnclear(err) {
			h.guesses.Wrong(addr, form.Label+" "+token)
			h.page(w, r, errorNotice(err))
			return
		}
		var who Visitor
		ok := err == nil
		if ok {
			who, ok = h.opt.May(r.Context(), token, p)
		}
		if !ok {
			h.guesses.Wrong(addr, form.Label+" "+token)
			form.Wrong = true
			h.askToken(w, http.StatusForbidden, form)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		end := time.Now().Add(loginTime)
		if !who.Expires.IsZero() && who.Expires.Before(end) {
			end = who.Expires
		}
		w.Header().Set("Location", p.URL+linked(form.Path, p.SignFor(end, who.Name, who.Proof)))
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

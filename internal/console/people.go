package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/openid"
)

// How people sign in with an issuer: see package openid. The issuer sends a browser back with a link, which anyone can
// forge. So the link is accepted only together with a cookie that this handler gave to the same browser, and it leads
// only to pages of the console. The reason for a failed sign-in is only a code.

const (
	// beginPath is the path at which a browser begins to sign in with the issuer. DonePath is the path to which the
	// issuer sends the browser back.
	beginPath = "/console/oidc/begin"
	DonePath  = "/console/oidc/callback"

	// flowCookie is the cookie of an unfinished sign-in with the issuer.
	flowCookie = "hutch_signin"
	flowTime   = 10 * time.Minute

	// Codes of failed sign-ins, in addition to those of package openid.
	noPermissions = "permissions"
	overLimit     = "limit"
	wrongHost     = "host"
)

// servePeople answers at beginPath and DonePath.
func (h *Handler) servePeople(w http.ResponseWriter, r *http.Request) {
	hardenCookieAnswer(w.Header())
	location, err := "", error(nil)
	if r.URL.Path == beginPath {
		location, err = h.beginPerson(w, r)
	} else {
		location, err = h.donePerson(w, r)
	}
	if err != nil {
		location = "/signin?error=" + h.codeOf(err)
	}
	http.Redirect(w, r, location, http.StatusSeeOther)
}

// beginPerson sends a browser to the issuer. The issuer sends the browser back to one fixed host name of this server,
// and the cookie of the sign-in must belong to that name. So the browser is first redirected to that host name.
func (h *Handler) beginPerson(w http.ResponseWriter, r *http.Request) (string, error) {
	to := pageOf(r.URL.Query().Get("to"))
	if !h.opt.People.IsHere(r.Host) {
		if r.URL.Query().Has("moved") {
			return "", &openid.Error{Reason: wrongHost, Err: hutch.Errorf(hutch.Invalid, "the browser calls the server %.100q, and not the host of --oidc-redirect-url", r.Host)}
		}
		at := *h.opt.People.Redirect()
		at.Path, at.RawQuery = beginPath, url.Values{"to": {to}, "moved": {"1"}}.Encode()
		return at.String(), nil
	}
	location, value, err := h.opt.People.Begin(r.Context(), to)
	if err == nil {
		http.SetCookie(w, h.newFlowCookie(value))
	}
	return location, err
}

// donePerson begins the session of a person whom the issuer has sent back.
func (h *Handler) donePerson(w http.ResponseWriter, r *http.Request) (string, error) {
	addr := h.opt.Client(r)
	if h.guesses.Over(addr) {
		return "", &openid.Error{Reason: overLimit, Err: errors.New("too many sign-ins failed from this address")}
	}
	gone := h.newFlowCookie("")
	value := ""
	if sent := r.CookiesNamed(gone.Name); len(sent) == 1 { // a second cookie can be from another host of the domain
		value = sent[0].Value
	}
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	grant, to, err := h.opt.People.Finish(r.Context(), value, r.URL.Query())
	if err == nil {
		err = h.beginPersonSession(w, r, grant)
	}
	if err == nil {
		return pageOf(to), nil
	}
	if failed, ok := errors.AsType[*openid.Error](err); ok && failed.Reason != openid.Unavailable && h.guesses.Wrong(addr, r.URL.RawQuery) {
		h.record(r, audit.SignIn, nil, func(context.Context) error { return hutch.Errorf(hutch.Denied, "%v", err) })
	}
	return "", err
}

// beginPersonSession begins a session if the person has any permission here.
func (h *Handler) beginPersonSession(w http.ResponseWriter, r *http.Request, grant *openid.Grant) error {
	who := h.opt.Person(r.Context(), grant)
	if len(who.Scopes) == 0 {
		return &openid.Error{Reason: noPermissions, Err: hutch.Errorf(hutch.Denied, "the issuer grants %.100q none of the scopes of this server, but %.200q", grant.Subject, grant.Scope)}
	}
	if err := h.opt.Count(r.Context(), who); err != nil {
		return &openid.Error{Reason: overLimit, Err: err}
	}
	_, _, err := h.begin(w, r, who, record{Of: who.ID, Person: personOf(who)}, grant, h.opt.People.Redirect().Scheme == "https")
	return err
}

// codeOf returns the code of an error for the page, and logs the error.
func (h *Handler) codeOf(err error) string {
	h.opt.Log.Warn("a person could not sign in", "err", err)
	if failed, ok := errors.AsType[*openid.Error](err); ok {
		return failed.Reason
	}
	return openid.Unavailable
}

// newFlowCookie returns the cookie of a sign-in. The browser sends it even when it comes here from the issuer's page.
func (h *Handler) newFlowCookie(value string) *http.Cookie {
	c := &http.Cookie{Name: flowCookie, Value: value, Path: "/console/oidc", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(flowTime / time.Second)}
	if h.opt.People.Redirect().Scheme == "https" {
		c.Name, c.Secure, c.Path = "__Host-"+flowCookie, true, "/" // the prefix __Host- requires these
	}
	return c
}

// pageOf returns the path and query of to if that is a page of the console, and otherwise the path of the first page.
func pageOf(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !isPagePath(u.Path) || u.Path == "/signin" || strings.ContainsAny(u.Path, "\\") || strings.Contains(u.Path, "//") {
		return "/sandboxes"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.Query().Encode()}).String()
}

// renewal renews the session of a person. It is kept only in memory, so after a restart of the server the session ends
// with its present token.
type renewal struct {
	grant *openid.Grant
	timer *time.Timer
}

// renewals has the functions that ask the issuer for new tokens and turn them into principals.
type renewals struct {
	renew  func(context.Context, *openid.Grant) (*openid.Grant, error)
	person func(context.Context, *openid.Grant) *caller.Principal
}

// renewTime is how long one renewal can take.
const renewTime = 30 * time.Second

// planRenewalLocked plans the renewal of a session after the time in, which is before its token ends.
func (s *sessions) planRenewalLocked(x *session, in time.Duration) {
	x.renewal.timer = time.AfterFunc(in, func() { s.renewSession(x) })
}

// lead returns how long before its end a token is renewed. It is also the pause between two tries.
func lead(left time.Duration) time.Duration { return max(min(left/4, time.Minute), time.Second) }

// renewSession renews the token of a session. If the issuer refuses, the session ends at once. If the issuer does not
// answer in time, the session ends with its token.
func (s *sessions) renewSession(x *session) {
	ctx, cancel := context.WithTimeout(context.Background(), renewTime)
	defer cancel()
	s.mu.Lock()
	old := x.renewal.grant
	s.mu.Unlock()
	grant, err := s.renewals.renew(ctx, old)
	var who *caller.Principal
	if err == nil {
		who = s.renewals.person(ctx, grant)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[x.key] != x {
		return
	}
	left := time.Until(x.Person.Expires)
	if failed, ok := errors.AsType[*openid.Error](err); ok && failed.Reason == openid.Unavailable {
		s.log.Warn("renew the session of a person", "err", err)
		s.planRenewalLocked(x, lead(left))
		return
	}
	if err != nil || len(who.Scopes) == 0 {
		s.log.Info("the issuer renews the session of a person no more", "err", err)
		s.removeLocked(ctx, x)
		return
	}
	s.renewedLocked(ctx, x, grant, who)
}

// renewedLocked gives a session its new token. Open streams continue, unless the person's rights have changed.
func (s *sessions) renewedLocked(ctx context.Context, x *session, grant *openid.Grant, who *caller.Principal) {
	other := !slices.Equal(x.Person.Scopes, who.Scopes)
	x.renewal.grant, x.Person = grant, personOf(who)
	if other {
		x.end(errSignedOut)
		x.base = nil
	}
	there, err := s.renew(ctx, x)
	if err != nil {
		s.log.Warn("note the renewal of a session", "err", err)
	}
	if err == nil && !there { // another server has ended the session
		s.dropLocked(x)
		return
	}
	x.timer.Reset(time.Until(x.ends()))
	left := time.Until(x.Person.Expires)
	s.planRenewalLocked(x, left-lead(left))
}

// renewedElsewhereLocked gives a session the newer token that another server has stored for it.
func (s *sessions) renewedElsewhereLocked(x *session, now *person) {
	if x.Person == nil || now == nil || !now.Expires.After(x.Person.Expires) {
		return
	}
	if x.end != nil && (!x.elsewhere || !slices.Equal(x.Person.Scopes, now.Scopes)) {
		x.end(errSignedOut)
		x.base = nil
	}
	x.Person, x.elsewhere = now, true
	x.timer.Reset(time.Until(x.ends()))
}

// isPerson reports whether a session belongs to a person. A renewal can replace its principal at any time.
func (s *sessions) isPerson(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.Person != nil
}

// grantOf returns the grant of a session, nil for none.
func (s *sessions) grantOf(x *session) *openid.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.renewal.grant
}

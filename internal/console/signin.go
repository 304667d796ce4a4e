package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/httpio"
	"hutch/internal/openid"
	"hutch/internal/problem"
	"hutch/internal/verb"
)

const (
	// sessionPath is the path at which a browser signs in and out, and reads its session.
	sessionPath = "/console/session"
	// waysPath is the path at which a browser reads how it can sign in.
	waysPath = "/console/signin"

	// maxSignIn is the longest body of a sign-in, in bytes: a token of an issuer can be long.
	maxSignIn = 32 << 10
	// bodyTime is how long a browser can take to send the body of a sign-in.
	bodyTime = 10 * time.Second
)

// signedIn is the answer about a session.
type signedIn struct {
	Kind      string            `json:"kind"` // "token" or "person"
	TokenID   string            `json:"tokenId"`
	Name      string            `json:"name"`
	Owner     string            `json:"owner"`
	Scopes    []hutch.Scope     `json:"scopes"`
	Verbs     []string          `json:"verbs"` // verbs that the scopes allow
	Limits    hutch.TokenLimits `json:"limits"`
	CSRF      string            `json:"csrf"`
	CreatedAt time.Time         `json:"createdAt"`
	ExpiresAt time.Time         `json:"expiresAt"`
	Idle      int               `json:"idleSeconds"`
	Version   hutch.Version     `json:"version"`
	Previews  string            `json:"previews"`
	Model     string            `json:"model"` // model that answers questions; "" for none
	SSH       bool              `json:"ssh"`   // whether the server answers SSH
}

// serveSession answers at sessionPath.
func (h *Handler) serveSession(w http.ResponseWriter, r *http.Request) {
	hardenCookieAnswer(w.Header())
	err := h.sameOrigin(r)
	switch {
	case err != nil:
	case r.Method == http.MethodPost:
		err = h.signIn(w, r)
	case r.Method == http.MethodDelete:
		err = h.signOut(w, r)
	default:
		err = h.showSession(w, r)
	}
	if err != nil {
		writeProblem(w, err)
	}
}

// writeProblem answers with an error. A browser that is not signed in, or sends a wrong token, gets the status 401.
func writeProblem(w http.ResponseWriter, err error) {
	d := problem.New(err)
	if unknown := (*unknownError)(nil); errors.As(err, &unknown) {
		d.Status, d.Title = http.StatusUnauthorized, http.StatusText(http.StatusUnauthorized)
	}
	d.Write(w)
}

// unknownError is an error for a browser that is not signed in.
type unknownError struct{ error }

func (e *unknownError) Unwrap() error { return e.error }

var errNotSignedIn = &unknownError{hutch.Errorf(hutch.Denied, "this browser is not signed in, or its session has ended: sign in with a token")}

// showSession answers with the principal that is signed in.
func (h *Handler) showSession(w http.ResponseWriter, r *http.Request) error {
	c, err := h.cookieOf(r)
	if err != nil {
		return err
	}
	if c == nil {
		return errNotSignedIn
	}
	x, who := h.sessions.use(r.Context(), *c)
	if who == nil {
		return errNotSignedIn
	}
	h.answer(w, *c, x, who)
	return nil
}

// answer describes the principal that is signed in, and the rights of its token.
func (h *Handler) answer(w http.ResponseWriter, c cookie, x *session, who *caller.Principal) {
	a := signedIn{
		Kind: "token", TokenID: who.ID, Name: who.Name, Owner: who.Owner, Scopes: who.Scopes, Limits: who.Limits, CSRF: c.csrf(),
		CreatedAt: x.Created, ExpiresAt: who.Expires, Idle: int(idle / time.Second), Version: h.opt.Version, Previews: h.opt.Previews, Model: h.opt.Model, SSH: h.opt.SSH,
	}
	if h.sessions.isPerson(x) {
		a.Kind = "person"
	}
	for _, v := range verb.All() {
		if who.Has(v.Scopes...) {
			a.Verbs = append(a.Verbs, v.Name)
		}
	}
	writeJSON(w, a)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
}

// signIn begins a session with a token. Wrong tokens are counted for the client's address.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) error {
	token, err := tokenOf(w, r)
	if err != nil {
		return err
	}
	addr := h.opt.Client(r)
	if h.guesses.Over(addr) {
		return hutch.Errorf(hutch.Exhausted, "too many wrong tokens came from your address: wait for a minute").With("limit", "sign-ins").With("retryAfter", 60)
	}
	who, err := h.opt.Tokens.Check(r.Context(), token)
	if err != nil {
		return h.refuse(r, addr, token, err)
	}
	if err := h.opt.Count(r.Context(), who); err != nil {
		return err
	}
	c, x, err := h.begin(w, r, who, recordOf(who, token), nil, isHTTPS(r.Header.Get("Origin")))
	if err == nil {
		h.answer(w, c, x, x.who)
	}
	return err
}

// refuse returns the error for a token that is wrong, or that cannot be checked now. A wrong token is recorded once a
// minute, however often it is sent: otherwise strangers could fill the disk.
func (h *Handler) refuse(r *http.Request, addr netip.Addr, token string, err error) error {
	if !errors.Is(err, hutch.Denied) {
		return err
	}
	err = &unknownError{err}
	if h.guesses.Wrong(addr, token) {
		h.record(r, audit.SignIn, nil, func(context.Context) error { return err })
	}
	return err
}

// tokenOf reads the token of a sign-in. A form of another site cannot send JSON.
func tokenOf(w http.ResponseWriter, r *http.Request) (string, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return "", hutch.Errorf(hutch.Invalid, "signing in takes application/json, such as {\"token\": \"hutch_...\"}")
	}
	var body struct {
		Token string `json:"token"`
	}
	text, err := httpio.ReadAll(w, r, maxSignIn, bodyTime)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(&body)
	}
	if err != nil || body.Token == "" {
		return "", hutch.Errorf(hutch.Invalid, "signing in takes one JSON object with the field token").Because(err).Naming(hutch.AboutField, "token")
	}
	return body.Token, nil
}

// begin begins a session for a principal, and sets its cookie in the browser. If secure is true, the page came over
// TLS, and the cookie is for TLS only. The browser's previous session ends.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, who *caller.Principal, rec record, grant *openid.Grant, secure bool) (c cookie, x *session, err error) {
	err = h.record(r, audit.SignIn, who, func(ctx context.Context) (err error) {
		c, x, err = h.sessions.create(ctx, rec, grant)
		return err
	})
	if err != nil {
		return c, nil, err
	}
	if old, _ := h.cookieOf(r); old != nil {
		h.sessions.remove(r.Context(), *old)
	}
	http.SetCookie(w, newCookie(secure || h.isSecure(r), c.String()))
	return c, x, nil
}

// newCookie returns the cookie to send.
func newCookie(secure bool, value string) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if secure {
		c.Name, c.Secure = hostCookieName, true
	}
	return c
}

// signOut ends the session of a browser, and its work. It also succeeds for a browser that is not signed in.
func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) error {
	shown, err := takeCSRF(r)
	if err != nil {
		return err
	}
	ended, err := h.endSessions(r, shown)
	if err != nil {
		return err
	}
	gone := newCookie(h.isSecure(r) || isHTTPS(r.Header.Get("Origin")), "")
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	if next := h.endAtIssuer(ended); next != "" {
		writeJSON(w, map[string]string{"next": next})
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// endAtIssuer returns the URL at which the browser also signs out at the issuer; "" for none.
func (h *Handler) endAtIssuer(ended *session) string {
	if ended == nil || ended.Person == nil || h.opt.People == nil {
		return ""
	}
	return h.opt.People.EndURL(h.sessions.grantOf(ended), "/signin")
}

// isHTTPS reports whether an origin uses TLS. It also works for a page behind a proxy that the server does not trust.
func isHTTPS(origin string) bool { return strings.HasPrefix(origin, "https://") }

// endSessions ends the session whose value the page sends. The browser can have sent further cookies: another host in
// the domain can set one, which must not keep anyone signed in.
func (h *Handler) endSessions(r *http.Request, shown string) (ended *session, err error) {
	live := false
	for _, c := range h.cookiesOf(r) {
		x, who := h.sessions.use(r.Context(), c)
		if who == nil {
			continue
		}
		live = true
		if shown != c.csrf() {
			continue
		}
		return x, h.record(r, audit.SignOut, who, func(ctx context.Context) error {
			h.sessions.remove(ctx, c)
			return nil
		})
	}
	if live {
		return nil, errCSRF
	}
	return nil, nil
}

// record runs do, and records it in the audit log.
func (h *Handler) record(r *http.Request, verb string, who *caller.Principal, do func(context.Context) error) error {
	from := caller.From(r.Context())
	op := audit.Operation{
		Time: time.Now(), Verb: verb, Surface: Surface, Remote: from.Origin.Remote, Request: from.Origin.Request, ClientRequest: from.Origin.ClientRequest, Trace: from.TraceID(),
	}
	if who != nil {
		op.Token, op.TokenName, op.Owner = who.ID, who.Name, who.Owner
	}
	ctx, end, err := h.opt.Observer.Begin(r.Context(), op)
	if err != nil {
		return err
	}
	err = do(ctx)
	end(audit.Outcome{Err: err})
	return err
}

// ways is the answer about how a browser can sign in.
type ways struct {
	Token bool    `json:"token"`
	OIDC  *issuer `json:"oidc,omitempty"`
}

// issuer is a way to sign in with an issuer.
type issuer struct {
	Label string `json:"label"`
	Href  string `json:"href"`
}

func (h *Handler) serveWays(w http.ResponseWriter, _ *http.Request) {
	hardenCookieAnswer(w.Header())
	a := ways{Token: true}
	if h.opt.People != nil {
		a.OIDC = &issuer{h.opt.People.Name(), beginPath}
	}
	writeJSON(w, a)
}

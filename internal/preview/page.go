package preview

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/problem"
)

// notice is the answer when a preview cannot be shown: a page for people, problem details for programs.
type notice struct {
	status int
	kind   hutch.Kind
	Title  string
	Text   string
	Retry  int    // seconds until the next try, which the page makes by itself
	Login  string // URL of the login page; empty for none
}

var (
	unknown       = notice{status: http.StatusNotFound, kind: hutch.NotFound, Title: "There is no such preview", Text: "The link may be old or incomplete: the port is no longer exposed, it has another token, or its sandbox is gone. Expose it again for a new link."}
	tooMany       = notice{status: http.StatusTooManyRequests, kind: hutch.Exhausted, Title: "Too many wrong links", Text: "Many previews that do not exist were asked for from your address. Wait for a minute.", Retry: 60}
	tooManyTokens = notice{status: http.StatusTooManyRequests, kind: hutch.Exhausted, Title: "Too many different tokens", Text: "Many tokens that are not of this server came from your address. Wait for a minute.", Retry: 60}
	crowded       = notice{status: http.StatusTooManyRequests, kind: hutch.Exhausted, Title: "Too many calls at once", Text: "Others are under way through this preview. Try again when some of them have ended."}
	full          = notice{status: http.StatusTooManyRequests, kind: hutch.Exhausted, Title: "Too many visitors at once", Text: "The previews of this owner have as many connections as they may. Try again when some of them have ended.", Retry: 5}
	moving        = notice{status: http.StatusServiceUnavailable, kind: hutch.Unavailable, Title: "The sandbox is moving to another machine", Text: "Try again in a moment.", Retry: 1}
	tooLarge      = notice{status: http.StatusRequestEntityTooLarge, kind: hutch.Invalid, Title: "The request is too large", Text: "Send it in parts."}

	nobody = notice{status: http.StatusBadGateway, kind: hutch.Unavailable, Title: "Nothing answers on port %d yet", Text: "The sandbox %s runs, and no server listens there. This page tries again by itself.", Retry: 2}
	silent = notice{status: http.StatusGatewayTimeout, kind: hutch.Timeout, Title: "The server on port %d does not answer", Text: "It took the request in the sandbox %s and said nothing in good time. Look at its log."}
	broken = notice{status: http.StatusBadGateway, kind: hutch.Unavailable, Title: "The server on port %d broke off", Text: "What it said in the sandbox %s was no HTTP, or ended too soon. Look at its log. If the server speaks HTTPS, expose the port with --https (\"protocol\": \"https\")."}
	noTLS  = notice{status: http.StatusBadGateway, kind: hutch.Unavailable, Title: "The server on port %d does not speak HTTPS", Text: "The port was exposed with the protocol https, and the server in the sandbox %s answers without TLS. If it speaks HTTP, expose the port with --https=false (\"protocol\": \"http\")."}
)

// about fills the port of a visit into a notice.
func (n notice) about(v *visit) notice {
	n.Title = fmt.Sprintf(n.Title, v.Port.Port)
	n.Text = fmt.Sprintf(n.Text, v.SandboxID)
	return n
}

// errorNotice returns the notice for an error; nil means that there is no such preview.
func errorNotice(err error) notice {
	if err == nil {
		return unknown
	}
	e := hutch.AsError(err)
	n := notice{status: problem.Status(e.Kind), kind: e.Kind, Title: "The sandbox cannot be reached", Text: e.Message}
	switch e.Kind {
	case hutch.NotFound:
		return unknown
	case hutch.Exhausted, hutch.Unavailable:
		n.status, n.Retry = http.StatusServiceUnavailable, 5
	}
	return n
}

// locked asks the visitor of a private preview for a credential.
func (h *Handler) locked(r *http.Request, v *visit) notice {
	n := notice{
		status: http.StatusUnauthorized, kind: hutch.Denied, Title: "This preview is private",
		Text: "Open it by a signed link that has not expired, or show a token: log in or, in a program, send the header " + tokenHeader + ".",
	}
	if h.opt.Login != "" && v.prefix == "" {
		back := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: withoutLink(r.URL.RawQuery)}
		n.Login = h.opt.Login + pathPrefix + "login?" + url.Values{"to": {v.label}, "path": {back.String()}}.Encode()
	}
	return n
}

//go:embed notice.html
var noticeText string

//go:embed login.html
var loginText string

var (
	noticePage = template.Must(template.New("notice").Parse(noticeText))
	loginPage  = template.Must(template.New("login").Parse(loginText))
)

// page answers with a notice.
func (h *Handler) page(w http.ResponseWriter, r *http.Request, n notice) {
	if isCall(r) {
		answerCall(w, n)
		return
	}
	header := w.Header()
	if n.Retry > 0 {
		header.Set("Retry-After", strconv.Itoa(n.Retry))
	}
	if n.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="hutch preview"`)
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		d := problem.New(hutch.Errorf(n.kind, "%s. %s", n.Title, n.Text))
		d.Status, d.Title = n.status, http.StatusText(n.status)
		d.Write(w)
		return
	}
	if r.Method != http.MethodGet {
		n.Retry = 0 // a second attempt would lack the request's body
	}
	ours(header)
	w.WriteHeader(n.status)
	noticePage.Execute(w, n)
}

// ours sets the headers for a page of this package, which has no scripts.
func ours(header http.Header) {
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Add("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
}

// loginForm is the data of the login page.
type loginForm struct {
	Label, Path string
	Wrong       bool
}

func (h *Handler) askToken(w http.ResponseWriter, status int, form loginForm) {
	ours(w.Header())
	w.WriteHeader(status)
	loginPage.Execute(w, form)
}

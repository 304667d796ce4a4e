package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/secret"
)

// request is the state of an open request.
type request struct {
	use  Use
	mask *secret.Redactor // nil before anything was sent
	told bool
}

type requestKey struct{}

func requestOf(r *http.Request) *request { return r.Context().Value(requestKey{}).(*request) }

// handler forwards requests.
func (x *exchange) handler(upstream http.RoundTripper) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      sender{x, upstream},
		FlushInterval:  -1, // flush at once
		ModifyResponse: x.answer,
		ErrorHandler:   x.fail,
		ErrorLog:       slog.NewLogLogger(x.log.Handler(), slog.LevelDebug),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !x.busy.TryRLock() {
			return // the connection is closed
		}
		defer x.busy.RUnlock()
		made := &request{use: Use{Began: time.Now(), Method: r.Method, Path: r.URL.Path}}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, made))
		err, end := x.refusal(r), func() {}
		if err == nil && x.Begin != nil {
			if end, err = x.Begin(); err != nil {
				err = refused{http.StatusTooManyRequests, err.Error()}
			}
		}
		if err != nil {
			x.fail(w, r, err)
			return
		}
		defer end()
		http.NewResponseController(w).EnableFullDuplex() // otherwise an early answer would cut the request off
		proxy.ServeHTTP(&maskingWriter{w, made}, r)
	})
}

// refused is an answer of our own.
type refused struct {
	status int
	why    string
}

// Error implements error.
func (r refused) Error() string { return r.why }

// refusal returns why a request must not be sent.
func (x *exchange) refusal(r *http.Request) error {
	switch {
	case !x.isHost(r.Host):
		return refused{http.StatusMisdirectedRequest, fmt.Sprintf("this connection is to %s, and the request is for %.80q: open another for it", x.Host, r.Host)}
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace:
		return refused{http.StatusMethodNotAllowed, r.Method + " is not sent on with credentials"}
	}
	return nil
}

func (x *exchange) isHost(authority string) bool {
	host, port, given := strings.Cut(strings.ToLower(authority), ":")
	return host == x.Host && (!given || port == strconv.Itoa(int(x.Port)))
}

// rewrite writes the outgoing request, without the credentials.
func (x *exchange) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "https", net.JoinHostPort(x.Host, strconv.Itoa(int(x.Port)))
	if r.Out.Host = x.Host; x.Port != 443 {
		r.Out.Host = r.Out.URL.Host
	}
	h := r.Out.Header
	h.Set("Accept-Encoding", "identity")
	// An answer in ranges or with compression could not be masked.
	for _, name := range []string{"Range", "If-Range", "Sec-Websocket-Extensions"} {
		h.Del(name)
	}
	if up := h.Get("Upgrade"); up != "" && !strings.EqualFold(up, "websocket") {
		h.Del("Upgrade") // a server can ignore it anyway
		h.Del("Connection")
	}
}

// sender adds the credentials at the last moment.
type sender struct {
	*exchange
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s sender) RoundTrip(out *http.Request) (*http.Response, error) {
	list, mask, err := s.Credentials()
	if err != nil {
		return nil, refused{http.StatusForbidden, hutch.AsError(err).Message}
	}
	if len(list) == 0 {
		return nil, refused{http.StatusForbidden, fmt.Sprintf("no secret is brokered for %s any more: set it again", s.Host)}
	}
	made := requestOf(out)
	made.mask = mask
	for _, c := range list {
		if add(c, out) {
			made.use.Secrets = append(made.use.Secrets, c.Name)
		}
	}
	return s.next.RoundTrip(out)
}

// fail answers if the host did not.
func (x *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	made := requestOf(r)
	if r.Context().Err() != nil { // the sandbox has disconnected
		x.report(made, 0, context.Cause(r.Context()))
		panic(http.ErrAbortHandler)
	}
	status, why := http.StatusBadGateway, fmt.Sprintf("%s could not be asked: %v", x.Host, err)
	if r, ok := errors.AsType[refused](err); ok {
		status, why = r.status, r.why
	}
	shown := hutch.Errorf(kindOf(status), "%s", made.mask.String(why))
	x.report(made, status, shown)
	d := problem.New(shown)
	d.Status, d.Title = status, http.StatusText(status)
	d.Write(w)
}

func kindOf(status int) hutch.Kind {
	switch status {
	case http.StatusBadGateway:
		return hutch.Unavailable
	case http.StatusForbidden:
		return hutch.Denied
	case http.StatusTooManyRequests:
		return hutch.Exhausted
	}
	return hutch.Invalid
}

// report reports a request once.
func (x *exchange) report(made *request, status int, err error) {
	if made.told {
		return
	}
	made.told = true
	made.use.Status, made.use.Err = status, err
	if err != nil {
		x.log.Info("a brokered request got no answer", "sandbox", x.Sandbox, "host", x.Host, "status", status, "err", err)
	}
	if x.Seen != nil {
		x.Seen(made.use)
	}
}

package e2b

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
)

// The headers of E2B's clients.
const (
	sandboxHeader = "E2b-Sandbox-Id"
	portHeader    = "E2b-Sandbox-Port"
	accessHeader  = "X-Access-Token"
	trafficHeader = "E2b-Traffic-Access-Token"
)

// visit is the meaning of a request's address and access token, found once for each request.
type visit struct {
	control bool // the request is for the control plane
	upload  bool // the request is for the control plane, and uploads files of a build
	id      string
	port    int
	found   bool // the sandbox exists
	target  seam.Target
	who     *caller.Principal // nil unless the request has an access token, or a signature made with one
}

// service reports whether one of E2B's services answers, not a program in the sandbox.
func (v *visit) service() bool { return v.port == seam.EnvdPort || v.port == seam.InterpreterPort }

type visitKey struct{}

func visitOf(r *http.Request) *visit {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	return v
}

// Front reads the addresses of requests. Requests for this package go to guarded, which leads through the guard to
// Inside. Requests for servers in sandboxes bypass the guard, as previews do. All others go to next.
func (s *Server) Front(guarded, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := s.visit(r)
		if v == nil {
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
		if v.control || v.service() {
			guarded.ServeHTTP(w, r)
			return
		}
		s.enter(w, r, v)
	})
}

// Inside answers the requests that Front has found; next answers the others.
func (s *Server) Inside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch v := visitOf(r); {
		case v == nil:
			next.ServeHTTP(w, r)
		case v.control:
			s.ServeHTTP(w, r)
		default:
			s.enter(w, r, v)
		}
	})
}

// Known returns the principal of a request with an access token, for the guard.
func Known(r *http.Request) *caller.Principal {
	if v := visitOf(r); v != nil {
		return v.who
	}
	return nil
}

// Open reports whether the guard must pass a request on without a principal. Then this package itself refuses the
// request, in the format of E2B's services, unless the request needs no principal.
func Open(r *http.Request) bool {
	v := visitOf(r)
	return v != nil && !v.control && v.who == nil
}

// Ours reports whether the client of a request expects E2B's errors.
func Ours(r *http.Request) bool { return visitOf(r) != nil }

// visit finds out which sandbox and port a request is for; nil means that this package does not serve it.
func (s *Server) visit(r *http.Request) *visit {
	switch label, ok := s.labelOf(r.Host); {
	case ok && label == "api":
		if v := s.lookUpload(r); v != nil {
			return v
		}
		return &visit{control: true}
	case ok:
		port, id, _ := strings.Cut(label, "-")
		n, err := strconv.Atoi(port)
		if err != nil || hutch.CheckPort(n) != nil {
			return nil
		}
		return s.look(r, &visit{id: id, port: n})
	case r.Header.Get(sandboxHeader) != "":
		r.URL.Path, r.URL.RawPath = "/"+strings.TrimLeft(strings.TrimPrefix(r.URL.Path, Prefix), "/"), ""
		port := seam.EnvdPort
		if text := r.Header.Get(portHeader); text != "" {
			port, _ = strconv.Atoi(text) // 0 is not a port, so no server is found
		}
		return s.look(r, &visit{id: r.Header.Get(sandboxHeader), port: port})
	case r.URL.Path == "/files" && r.URL.Query().Get("signature") != "":
		return s.lookSigned(r)
	case r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, Prefix):
		return s.lookUploadBelow(r)
	}
	return nil
}

// labelOf returns the label of a host name below the domain.
func (s *Server) labelOf(host string) (string, bool) {
	if s.opt.Domain == "" {
		return "", false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, domain, ok := strings.Cut(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	return label, ok && domain == s.opt.Domain
}

// Named reports whether a host name is below the domain.
func (s *Server) Named(host string) bool {
	_, ok := s.labelOf(host)
	return ok
}

// look fills in the sandbox of a visit. The access token names the owner; without a token, the id does. For a port only
// the id counts, because Preview has only the id, and both must find the same sandbox.
func (s *Server) look(r *http.Request, v *visit) *visit {
	if !v.service() {
		if sb, ok := s.findByID(r.Context(), v.id); ok {
			s.set(v, sb)
		}
		return v
	}
	if owner, ok := s.ownerOf(r.Header.Get(accessHeader), v.id); ok {
		s.fill(r, v, owner)
		return v
	}
	if sb, ok := s.findByID(r.Context(), v.id); ok {
		s.set(v, sb)
		if s.signed(r, v.target.Secret) || s.managesContexts(r, v, sb) {
			s.admit(v, sb.Owner)
		}
	}
	return v
}

// managesContexts reports whether a request is about the contexts of the code interpreter, with the sandbox's traffic
// token: E2B's clients do not send the access token there.
func (s *Server) managesContexts(r *http.Request, v *visit, sb hutch.Sandbox) bool {
	return v.port == seam.InterpreterPort && (r.URL.Path == "/contexts" || strings.HasPrefix(r.URL.Path, "/contexts/")) &&
		hmac.Equal([]byte(r.Header.Get(trafficHeader)), []byte(s.trafficToken(sb.Owner, sb.ID)))
}

// fill looks for the sandbox of an owner.
func (s *Server) fill(r *http.Request, v *visit, owner string) {
	all, _ := s.opt.Records(caller.WithOwner(r.Context(), caller.Owner{ID: owner}), hutch.Filter{Brief: true, ID: v.id})
	for _, sb := range all {
		if sb.Owner == owner {
			s.set(v, sb)
			v.target.Verified = true
			s.admit(v, owner)
		}
	}
}

func (s *Server) set(v *visit, sb hutch.Sandbox) {
	if stateOf(sb) == "" {
		return
	}
	v.found = true
	v.target = seam.Target{
		Sandbox: sb.ID, Service: s.svc, Record: sb, Secret: s.accessToken(sb.Owner, sb.ID), Template: templateOf(sb), Domain: s.opt.Domain,
	}
}

// admit makes the owner of the sandbox the caller of the request, if the owner's token is valid.
func (s *Server) admit(v *visit, owner string) {
	if v.who = s.opt.Principal(owner); v.who == nil {
		v.target.Verified = false
	}
}

// lookSigned finds the sandbox whose access token a signature was made with: the URL of a file names no sandbox.
func (s *Server) lookSigned(r *http.Request) *visit {
	all, _ := s.opt.Records(caller.WithoutOwner(r.Context()), hutch.Filter{Brief: true})
	for _, sb := range all {
		if s.signed(r, s.accessToken(sb.Owner, sb.ID)) {
			v := &visit{id: sb.ID, port: seam.EnvdPort}
			s.set(v, sb)
			s.admit(v, sb.Owner)
			return v
		}
	}
	return nil
}

// signed reports whether the URL of a request is signed with an access token. Envd checks whether the signature has
// expired.
func (s *Server) signed(r *http.Request, token string) bool {
	q := r.URL.Query()
	given := q.Get("signature")
	if r.URL.Path != "/files" || given == "" {
		return false
	}
	operation := "read"
	if r.Method == http.MethodPost {
		operation = "write"
	}
	return hmac.Equal([]byte(given), []byte(signature(q.Get("path"), operation, q.Get("username"), token, q.Get("signature_expiration"))))
}

// internal are paths of envd that only E2B's own servers call.
var internal = []string{"/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/upgrade"}

// enter passes a request on to the server at a port of a sandbox.
func (s *Server) enter(w http.ResponseWriter, r *http.Request, v *visit) {
	sb := v.target.Record
	if !v.found || stateOf(sb) == paused && sb.Labels[labelResume] == "" {
		missing(w, v.id)
		return
	}
	ctx, cancel := context.WithCancelCause(caller.WithSurface(r.Context(), "e2b"))
	defer cancel(nil)
	at := place{sb.Owner, sb.ID}
	defer s.calls.add(at, func() { cancel(seam.ErrPaused) })()
	v.target.OnPause = func(end func()) func() { return s.calls.add(at, end) }
	r = r.WithContext(seam.With(ctx, v.target))
	switch v.port {
	case seam.EnvdPort:
		s.envd(w, r, v)
	case seam.InterpreterPort:
		if !v.target.Verified && v.who == nil {
			seam.Refuse(w, http.StatusUnauthorized, noAccess)
			return
		}
		s.opt.Services.Interpreter.ServeHTTP(w, r)
	default:
		s.visitPort(w, r, v)
	}
}

const noAccess = "this needs the access token of the sandbox, in the header X-Access-Token: connect to the sandbox again for it"

func (s *Server) envd(w http.ResponseWriter, r *http.Request, v *visit) {
	switch {
	case r.URL.Path == "/health" && r.Method == http.MethodGet && stateOf(v.target.Record) == paused:
		missing(w, v.id)
	case r.URL.Path == "/health" && r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNoContent)
	case slices.Contains(internal, r.URL.Path):
		seam.Refuse(w, http.StatusNotFound, "there is nothing at "+head(r.URL.Path))
	case !v.target.Verified && r.URL.Path != "/files":
		seam.Refuse(w, http.StatusUnauthorized, noAccess)
	default:
		s.opt.Services.Envd.ServeHTTP(w, r)
	}
}

// visitPort shows a server in the sandbox.
func (s *Server) visitPort(w http.ResponseWriter, r *http.Request, v *visit) {
	sb := v.target.Record
	who := s.opt.Principal(sb.Owner)
	switch {
	case s.opt.Ports == nil:
		seam.Refuse(w, http.StatusNotImplemented, "this server shows no ports over E2B's API: start it with --e2b-domain")
	case !mayShow(who):
		seam.Refuse(w, http.StatusForbidden, "the token of this sandbox may not show ports: it needs the scope ports")
	case sb.Labels[labelClosed] != "" && !hmac.Equal([]byte(r.Header.Get(trafficHeader)), []byte(s.trafficToken(sb.Owner, sb.ID))):
		proxyError{SandboxID: sb.ID, Message: "Sandbox is secured with traffic access token. Token header '" + strings.ToLower(trafficHeader) + "' is missing or wrong", Code: http.StatusForbidden}.write(w)
	default:
		ctx, release := who.Hold(r.Context())
		defer release()
		s.opt.Ports.ServeHTTP(w, s.inward(r.WithContext(ctx), v))
	}
}

// inward prepares a request for a server in the sandbox: its host names the port, and tokens of the sandbox are
// removed.
func (s *Server) inward(r *http.Request, v *visit) *http.Request {
	if _, named := s.labelOf(r.Host); !named {
		r.Host = strconv.Itoa(v.port) + "-" + v.id + "." + s.opt.Domain
	}
	r.Header.Del(trafficHeader)
	if strings.HasPrefix(r.Header.Get(accessHeader), accessPrefix+".") {
		r.Header.Del(accessHeader)
	}
	return r
}

// mayShow reports whether an owner's token is valid, and may give servers URLs.
func mayShow(who *caller.Principal) bool { return who != nil && who.Has(hutch.ScopePorts) }

// Preview finds the sandbox and port of a label, for the handler in Options.Ports, which dials it.
func (s *Server) Preview(label string) (hutch.Preview, error) {
	port, id, _ := strings.Cut(label, "-")
	n, err := strconv.Atoi(port)
	if err != nil || hutch.CheckPort(n) != nil {
		return hutch.Preview{}, hutch.ErrNoPreview
	}
	sb, ok := s.findByID(context.Background(), id)
	if !ok || !mayShow(s.opt.Principal(sb.Owner)) {
		return hutch.Preview{}, hutch.ErrNoPreview
	}
	shown := hutch.Port{SandboxID: sb.ID, Port: n, URL: "https://" + label + "." + s.opt.Domain, Access: hutch.PublicPort, Protocol: protocolOf(sb, n)}
	return hutch.Preview{Port: shown, Owner: sb.Owner, Host: hostOf(sb, n), Life: context.Background()}, nil
}

// findByID finds the sandbox of an id that this package has made. The id determines the owner.
func (s *Server) findByID(ctx context.Context, id string) (hutch.Sandbox, bool) {
	all, _ := s.opt.Records(caller.WithoutOwner(ctx), hutch.Filter{Brief: true})
	i := slices.IndexFunc(all, func(sb hutch.Sandbox) bool { return sb.ID == id && s.isIDOf(sb.Owner, id) })
	if i < 0 {
		return hutch.Sandbox{}, false
	}
	return all[i], true
}

// proxyError answers like E2B's proxy, which is in front of its sandboxes, when a request cannot be passed on.
type proxyError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

// missing answers for a sandbox that has ended or does not run. Clients go by the status and this message.
func missing(w http.ResponseWriter, id string) {
	proxyError{SandboxID: head(id), Message: "The sandbox was not found", Code: http.StatusBadGateway}.write(w)
}

func (e proxyError) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(e.Code)
	json.NewEncoder(w).Encode(e) // an error means that the client has disconnected
}

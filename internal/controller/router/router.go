// Package router leads requests of agent-sandbox clients to sandboxes. The headers X-Sandbox-ID, X-Sandbox-Namespace and X-Sandbox-Port name
// an object of the cluster and a port. At the port of the runtime, the router itself answers: commands run and files move by calls
// of a hutch.Service. Other ports are servers in the sandbox.
package router

import (
	"context"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
	"hutch/internal/membudget"
	"hutch/internal/netaddr"
	"hutch/internal/problem"
)

// RuntimePort is where clients expect the runtime of a sandbox: the program in its container that runs commands and moves files.
const RuntimePort = 8888

// Target is what the router needs to know of one object.
type Target struct {
	Sandbox string // its sandbox on the server
	Dir     string // what paths are relative to, and where commands run
}

// Directory knows the objects of the cluster, and who can use them.
type Directory interface {
	// Allow returns an error of kind Denied unless the holder of a token can use the sandbox of that name. The error
	// for an unknown token has the datum "unauthenticated". The error does not show whether the object exists.
	Allow(ctx context.Context, token, namespace, name string) error
	// Find returns the sandbox of the object with the name and, unless uid is empty, with the UID. The error is
	// NotFound for an object that callers cannot use, and Conflict for a suspended object.
	Find(ctx context.Context, namespace, name, uid string) (Target, error)
}

// Options configure a router.
type Options struct {
	Service   hutch.Service
	Directory Directory
	// Loopback says that requests must name localhost or a loopback address as their host. Without it, a web page could point
	// its own name at a router on loopback that asks for no token (DNS rebinding).
	Loopback bool
}

// Handler is the router.
type Handler struct {
	opt   Options
	room  *membudget.Budget
	calls *compat.Calls
	proxy *httputil.ReverseProxy
}

// New returns a router. Close it when its server accepts no more connections.
func New(opt Options) *Handler {
	const memory = 512 << 20 // bytes of requests and results that are held at once; a namespace has at most a quarter
	h := &Handler{opt: opt, room: membudget.New(memory, memory/4), calls: compat.NewCalls("agent-sandbox")}
	h.proxy = h.newProxy()
	return h
}

// Close ends the requests under way, and waits for them.
func (h *Handler) Close() { h.calls.Close() }

// fault is an answer with an error, in the form of this API.
type fault struct {
	status int
	Detail string `json:"detail"`
}

func (f fault) answer(w http.ResponseWriter) { compat.Answer(w, f.status, f) }

// fail answers with an error of a call.
func fail(w http.ResponseWriter, err error) {
	compat.RetryAfter(w, err)
	e := hutch.AsError(err)
	f := fault{problem.Status(e.Kind), e.Message}
	if e.Data["unauthenticated"] == true {
		f.status = http.StatusUnauthorized
	}
	f.answer(w)
}

// route is what the headers of a request name.
type route struct {
	namespace, name, uid string
	port                 int
	timeout              time.Duration // for the answer of a program in the sandbox to begin
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	labelName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

const (
	longestName  = 253
	longestLabel = 63

	defaultTimeout = 180 * time.Second
	longestTimeout = 24 * time.Hour
)

// readRoute reads the headers of a request. X-Sandbox-Pod-IP is not one of them: no client chooses an address that the router connects to.
func readRoute(h http.Header) (route, *fault) {
	r := route{name: h.Get("X-Sandbox-ID"), namespace: h.Get("X-Sandbox-Namespace"), uid: h.Get("X-Sandbox-UID"), port: RuntimePort, timeout: defaultTimeout}
	if r.namespace == "" {
		r.namespace = "default"
	}
	if port := h.Get("X-Sandbox-Port"); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return r, &fault{http.StatusBadRequest, "Invalid port format."}
		}
		r.port = int(n)
	}
	if s, err := strconv.ParseFloat(h.Get("X-Sandbox-Timeout"), 64); err == nil && s > 0 && s < longestTimeout.Seconds() {
		r.timeout = hutch.Seconds(s).Duration()
	}
	switch {
	case r.name == "":
		return r, &fault{http.StatusBadRequest, "X-Sandbox-ID header is required."}
	case len(r.name) > longestName || !objectName.MatchString(r.name):
		return r, &fault{http.StatusBadRequest, "Invalid sandbox ID format."}
	case len(r.namespace) > longestLabel || !labelName.MatchString(r.namespace):
		return r, &fault{http.StatusBadRequest, "Invalid namespace format."}
	}
	return r, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.opt.Loopback && !isLoopback(r) {
		fault{http.StatusForbidden, "a router without tokens answers only under localhost or a loopback address"}.answer(w)
		return
	}
	if r.Method == http.MethodGet && r.URL.Path == "/healthz" && r.Header.Get("X-Sandbox-ID") == "" {
		compat.Answer(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	to, bad := readRoute(r.Header)
	if bad != nil {
		bad.answer(w)
		return
	}
	target, err := h.find(r, to)
	if err != nil {
		fail(w, err)
		return
	}
	account, free := h.room.Open(to.namespace)
	defer free()
	r = r.WithContext(caller.With(r.Context(), caller.Caller{Budget: account}))
	r, done := h.calls.Begin(r)
	defer done()
	if to.port == RuntimePort {
		h.runtime(w, r, target)
		return
	}
	h.forward(w, r, to, target)
}

// isLoopback reports whether the Host header of a request names this machine.
func isLoopback(r *http.Request) bool {
	host, _ := netaddr.SplitHost(r.Host)
	return netaddr.IsLoopback(host)
}

// find returns the sandbox of a request, if the request's token can use it. A caller that cannot use a sandbox does not
// learn whether the sandbox exists.
func (h *Handler) find(r *http.Request, to route) (Target, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		token = ""
	}
	if err := h.opt.Directory.Allow(r.Context(), token, to.namespace, to.name); err != nil {
		return Target{}, err
	}
	return h.opt.Directory.Find(r.Context(), to.namespace, to.name, to.uid)
}

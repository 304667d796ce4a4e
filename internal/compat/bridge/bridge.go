// Package bridge answers the clients of Cloudflare's Sandbox bridge: the REST API below /v1/sandbox and /v1/pool that
// Cloudflare's SDK serves from a Worker. A program that uses it changes one URL.
//
// A sandbox of the bridge is a sandbox of Hutch with the same id. An id that Hutch cannot use becomes "cf-" and 26
// characters of its hash: see [SandboxID]. Session ids are mapped in the same way to ids of bash contexts.
//
// It differs from the original where the original loses something: output is byte-exact, also in sessions; files and
// archives have no size limit of their own; a time limit holds in sessions too; asking whether a sandbox runs does not
// wake it. Each terminal without a session has its own shell, which ends with the connection. A request that cannot be
// mapped is refused with status 501, and the error names the reason.
//
// Errors are {"error", "code"} with the codes of the original.
package bridge

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/ctxlock"
	"hutch/internal/httpio"
)

// Prefix comes before all paths of the API, for clients that need the whole API at one base URL.
const Prefix = "/bridge"

// Paths are patterns of the bridge's paths at the root, without [Prefix]. Other paths at the root, such as
// /v1/openapi.json, belong to Hutch.
var Paths = []string{"/v1/sandbox", "/v1/sandbox/", "/v1/pool/stats", "/v1/pool/prime", "/v1/pool/shutdown-prewarmed"}

// Open reports whether a request needs no token.
func Open(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == Prefix+"/health" || slices.Contains(descriptions, r.URL.Path))
}

// descriptions are the paths of the description of the API, which holds nothing secret.
var descriptions = []string{Prefix + "/v1/openapi.json", Prefix + "/v1/openapi.html", Prefix + "/v1/openapi"}

// Options configure a handler; the zero value works.
type Options struct {
	// Volumes and Pools are served if they are set.
	Volumes hutch.Volumes
	Pools   hutch.Pools
	// MaxTimeout bounds a command without a time limit, because the bridge sets no default limit. Default 24 h.
	MaxTimeout time.Duration
	// Stall is how long a client can leave data unread before it is disconnected; default 5 minutes.
	Stall time.Duration
	Log   *slog.Logger
}

// Handler serves the API.
type Handler struct {
	svc     hutch.Service
	volumes hutch.Volumes
	pools   hutch.Pools
	longest time.Duration
	stall   time.Duration
	log     *slog.Logger
	mux     *http.ServeMux
	calls   *compat.Calls

	labelling ctxlock.Locks // by owner and sandbox
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, volumes: opt.Volumes, pools: opt.Pools, mux: http.NewServeMux(), calls: compat.NewCalls("bridge"),
		longest: cmp.Or(opt.MaxTimeout, 24*time.Hour), stall: cmp.Or(opt.Stall, compat.Stall),
		log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
	}
	for route, f := range h.routes() {
		h.mux.HandleFunc(route, h.counted(h.withParameters(f, parameters[route]...)))
	}
	h.mux.HandleFunc("/", h.counted(func(w http.ResponseWriter, r *http.Request) {
		h.refuse(w, r, http.StatusNotFound, codeRequest, "404 Not Found: the bridge has no "+r.Method+" of this path")
	}))
	return h
}

// Routes lists the routes, as patterns of [http.ServeMux].
func (h *Handler) Routes() []string {
	var list []string
	for route := range h.routes() {
		list = append(list, route)
	}
	return list
}

func (h *Handler) routes() map[string]http.HandlerFunc {
	list := map[string]http.HandlerFunc{
		"POST /v1/sandbox":                          h.create,
		"GET /v1/pool/stats":                        h.poolStats,
		"POST /v1/pool/prime":                       h.poolPrime,
		"POST /v1/pool/shutdown-prewarmed":          h.poolShutdown,
		"GET /v1/openapi.json":                      h.document,
		"GET /v1/openapi.html":                      h.page,
		"GET /v1/openapi":                           h.page,
		"GET /health":                               h.health,
		"DELETE /v1/sandbox/{id}":                   h.sandbox(h.destroy),
		"GET /v1/sandbox/{id}/running":              h.sandbox(h.running),
		"POST /v1/sandbox/{id}/exec":                h.sandbox(h.exec),
		"GET /v1/sandbox/{id}/file/{path...}":       h.sandbox(h.readFile),
		"PUT /v1/sandbox/{id}/file/{path...}":       h.sandbox(h.writeFile),
		"POST /v1/sandbox/{id}/persist":             h.sandbox(h.persist),
		"POST /v1/sandbox/{id}/hydrate":             h.sandbox(h.hydrate),
		"GET /v1/sandbox/{id}/pty":                  h.sandbox(h.pty),
		"POST /v1/sandbox/{id}/session":             h.sandbox(h.createSession),
		"DELETE /v1/sandbox/{id}/session/{session}": h.sandbox(h.deleteSession),
		"POST /v1/sandbox/{id}/tunnel/{port}":       h.sandbox(h.openTunnel),
		"DELETE /v1/sandbox/{id}/tunnel/{port}":     h.sandbox(h.closeTunnel),
		"POST /v1/sandbox/{id}/mount":               h.sandbox(h.mount),
		"POST /v1/sandbox/{id}/unmount":             h.sandbox(h.unmount),
	}
	return list
}

// parameters are the parameters of the routes that have some. The guard has already read the token of a description.
var parameters = map[string][]string{
	"POST /v1/sandbox/{id}/persist": {"excludes"}, "GET /v1/sandbox/{id}/pty": {"cols", "rows", "shell", "session"},
	"GET /v1/openapi.json": {"token"}, "GET /v1/openapi.html": {"token"}, "GET /v1/openapi": {"token"},
}

// withParameters refuses parameters that are not known.
func (h *Handler) withParameters(f http.HandlerFunc, known ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := compat.CheckQuery(r, known...); err != nil {
			h.fail(w, r, err, codeRequest)
			return
		}
		f(w, r)
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the open calls and waits for them.
func (h *Handler) Close() { h.calls.Close() }

// counted returns f for a request that ends with the handler.
func (h *Handler) counted(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r, done := h.calls.Begin(r)
		defer done()
		f(w, r)
	}
}

// sandbox returns a handler that calls f with the id of Hutch's sandbox.
func (h *Handler) sandbox(f func(w http.ResponseWriter, r *http.Request, id string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, ok := SandboxID(r.PathValue("id"))
		if !ok {
			h.refuse(w, r, http.StatusBadRequest, codeRequest, "Invalid sandbox ID format")
			return
		}
		f(w, r, id)
	}
}

// Uploads reports whether a request's body is a file or an archive. Such a body has no size limit, because it is never
// held in memory.
func Uploads(r *http.Request) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(r.URL.Path, Prefix), "/v1/sandbox/")
	_, call, _ := strings.Cut(rest, "/")
	return ok && (r.Method == http.MethodPut && strings.HasPrefix(call, "file/") || r.Method == http.MethodPost && call == "hydrate")
}

// create makes a sandbox. The original only makes an id. Here the sandbox exists afterwards, so a token that cannot
// have another sandbox gets the error at once.
func (h *Handler) create(w http.ResponseWriter, r *http.Request) {
	id := newSandboxID()
	if _, err := h.svc.Create(r.Context(), hutch.CreateRequest{ID: id}); err != nil {
		h.fail(w, r, err, codePool)
		return
	}
	h.answer(w, r, map[string]string{"id": id})
}

// destroy saves the writable mounts, and destroys the sandbox. A missing sandbox is not an error.
func (h *Handler) destroy(w http.ResponseWriter, r *http.Request, id string) {
	err := h.saveMounts(r.Context(), id)
	if err == nil {
		_, err = h.svc.Destroy(r.Context(), id, true)
	}
	if err != nil && !compat.Missing(err) {
		h.fail(w, r, err, codePool)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// running reports whether the sandbox can be used without a loss of its files. It wakes nothing: a sleeping sandbox
// wakes with its next use.
func (h *Handler) running(w http.ResponseWriter, r *http.Request, id string) {
	list, err := h.svc.Sandboxes(r.Context(), hutch.Filter{ID: id, Brief: true})
	if err != nil {
		h.fail(w, r, err, codePool)
		return
	}
	alive := len(list) == 1 && list[0].Status != hutch.Failed && list[0].Status != hutch.Destroyed
	h.answer(w, r, map[string]bool{"running": alive})
}

func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r, map[string]bool{"ok": true})
}

// poolState is the answer of /v1/pool/stats.
type poolState struct {
	Warm     int `json:"warm"`
	Assigned int `json:"assigned"`
	Total    int `json:"total"`
	Config   struct {
		Target  int `json:"warmTarget"`
		Refresh int `json:"refreshInterval"` // ms; 0: the pool refills as soon as something is taken
	} `json:"config"`
	Max *int `json:"maxInstances"`
}

func (h *Handler) poolStats(w http.ResponseWriter, r *http.Request) {
	state, err := h.pool(r.Context())
	if err != nil {
		h.fail(w, r, err, codePool)
		return
	}
	list, err := h.svc.Sandboxes(r.Context(), hutch.Filter{Status: hutch.Running, Brief: true})
	if err != nil {
		h.fail(w, r, err, codePool)
		return
	}
	s := poolState{Warm: state.Ready, Assigned: len(list), Total: state.Ready + len(list)}
	s.Config.Target = state.Max
	h.answer(w, r, s)
}

// poolPrime checks that there is a pool. Hutch's pool fills itself when the server starts.
func (h *Handler) poolPrime(w http.ResponseWriter, r *http.Request) {
	if _, err := h.pool(r.Context()); err != nil {
		h.fail(w, r, err, codePool)
		return
	}
	h.answer(w, r, okay)
}

func (h *Handler) poolShutdown(w http.ResponseWriter, r *http.Request) {
	h.fail(w, r, hutch.Errorf(hutch.Unsupported, "shutdown-prewarmed: no call empties the pool; its size follows use, and hutch serve --pool 0 turns it off"), codePool)
}

func (h *Handler) pool(ctx context.Context) (hutch.PoolState, error) {
	if h.pools == nil {
		return hutch.PoolState{}, hutch.Errorf(hutch.Unsupported, "pool: this server has none; one that hutch serve runs has")
	}
	return h.pools.Pool(ctx)
}

// writer writes an answer whose client must read each piece in time.
func (h *Handler) writer(w http.ResponseWriter, r *http.Request) *httpio.Writer {
	return httpio.NewWriter(w, r, h.stall)
}

func portOf(text string) (int, bool) {
	port, err := strconv.Atoi(text)
	return port, err == nil && port >= 1024 && port <= 65535
}

// Package e2b answers E2B's API, so that its clients run against this server unchanged.
//
// It is a translation: each request becomes calls of a [hutch.Service] on behalf of the caller. A request that cannot
// be translated is refused with 501, and the error names the option. The package stores nothing except builds in
// progress and their files (see builds.go). Values for which our records have no field are in labels of the sandbox,
// whose names begin with "e2b."; tokens of sandboxes are computed (see keys.go).
//
// # Addresses
//
// Clients find the control plane at the path /e2b, and at api.DOMAIN if the server has a domain for E2B. The services
// inside a sandbox, on ports 49983 and 49999, are found by the headers E2b-Sandbox-Id and E2b-Sandbox-Port, by the host
// name PORT-ID.DOMAIN, or by the signature in the URL of a file. [Server.Front] reads the address of each request
// before the guard does, because such a request has the access token of a sandbox instead of a token of this server.
//
// # Lives of sandboxes
//
// If a timeout kills a sandbox, the sandbox is kept awake until then: it has KeepAlive and a hard lifetime. If a
// timeout pauses a sandbox, it hibernates after that time without use; in E2B, use does not postpone the pause. A
// hibernated, stopped or paused sandbox is "paused" to a client, and only connect wakes it, unless it resumes
// automatically.
package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
)

// Options are the settings of a server. Fields that can be nil or empty say so.
type Options struct {
	// Service makes calls for the principal in their context.
	Service hutch.Service
	// Images, Accounts, Timelines, Volumes and Secrets are optional; without one, the calls that need it are refused.
	Images    hutch.Images
	Accounts  hutch.Accounts
	Timelines hutch.Timelines
	Volumes   hutch.Volumes
	Secrets   hutch.Secrets
	// Histories has past metrics, of the owner in the context; it can be nil.
	Histories hutch.Histories
	// Records lists brief records of sandboxes: those of the owner in the context or, without one, of all owners. The
	// server itself uses the list to find the sandbox of an address; no client sees it.
	Records func(context.Context, hutch.Filter) ([]hutch.Sandbox, error)
	// Principal returns the principal of an owner's live token, or nil.
	Principal func(owner string) *caller.Principal
	// Secret is the key with which the tokens of sandboxes are computed.
	Secret []byte
	// Services are the services at E2B's ports of sandboxes.
	Services seam.Handlers
	// Ports serves all other ports of sandboxes; nil serves none.
	Ports http.Handler
	// Domain is the parent of api.DOMAIN and PORT-ID.DOMAIN, which lead to this server; empty for none.
	Domain string
	// Uploads is a folder for files of builds, which nothing else uses. Its content is removed at the start. Without
	// it, or without Images, no templates are built.
	Uploads string
	// MaxTimeout is the longest that the server waits for a process; 0 for no limit.
	MaxTimeout time.Duration
	Log        *slog.Logger
}

// Server answers E2B's clients.
type Server struct {
	opt Options
	svc hutch.Service
	log *slog.Logger
	api *http.ServeMux

	calls   calls
	builds  builds
	uploads *uploads
	life    context.Context // ends with Close
	end     context.CancelFunc
}

// New returns a server.
func New(opt Options) *Server {
	s := &Server{opt: opt, svc: opt.Service, log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), api: http.NewServeMux(), uploads: newUploads(opt.Uploads)}
	s.life, s.end = context.WithCancel(context.Background())
	s.routes()
	return s
}

// Prefix begins the paths of the control plane on the server's own host names.
const Prefix = "/e2b/"

// handler answers a request with a status and, unless it is nil, a body.
type handler func(w http.ResponseWriter, r *http.Request) (status int, body any, err error)

func (s *Server) routes() {
	for pattern, h := range s.table() {
		s.api.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := checkQuery(r, parameters[pattern]); err != nil {
				s.fail(w, r, err)
				return
			}
			status, body, err := h(w, r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			answer(w, status, body)
		})
	}
	s.api.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		seam.Refuse(w, http.StatusNotImplemented, "this server does not have "+r.Method+" "+head(r.URL.Path)+" of E2B's API: docs/e2b.md has what there is")
	})
}

// Routes lists the routes of the control plane, as "METHOD /path/{id}".
func (s *Server) Routes() []string { return slices.Sorted(maps.Keys(s.table())) }

// table has every route of the control plane.
func (s *Server) table() map[string]handler {
	return map[string]handler{
		"POST /sandboxes":    s.createV1,
		"POST /v2/sandboxes": s.createV2,
		"GET /sandboxes":     s.listV1,
		"GET /v2/sandboxes":  s.listV2,

		"GET /sandboxes/{id}":             s.get,
		"DELETE /sandboxes/{id}":          s.kill,
		"POST /sandboxes/{id}/connect":    s.connect,
		"POST /v2/sandboxes/{id}/connect": s.connect,
		"POST /sandboxes/{id}/resume":     s.resume,
		"POST /sandboxes/{id}/pause":      s.pause,
		"POST /sandboxes/{id}/timeout":    s.timeout,
		"POST /sandboxes/{id}/refreshes":  s.refresh,
		"PUT /sandboxes/{id}/network":     s.network,
		"GET /sandboxes/{id}/metrics":     s.metrics,
		"GET /sandboxes/metrics":          s.metricsOfMany,
		"GET /sandboxes/{id}/logs":        s.logsV1,
		"GET /v2/sandboxes/{id}/logs":     s.logsV2,
		"POST /sandboxes/{id}/fork":       s.fork,

		"POST /volumes":        s.createVolume,
		"GET /volumes":         s.listVolumes,
		"GET /volumes/{id}":    s.getVolume,
		"DELETE /volumes/{id}": s.deleteVolume,

		"POST /secrets":        s.createSecret,
		"GET /secrets":         s.listSecrets,
		"GET /secrets/{id}":    s.getSecret,
		"POST /secrets/{id}":   s.updateSecret,
		"DELETE /secrets/{id}": s.deleteSecret,

		"POST /sandboxes/{id}/snapshots": s.snapshot,
		"GET /snapshots":                 s.snapshots,
		"DELETE /templates/{id}":         s.deleteTemplate,

		"POST /v3/templates":                        s.requestBuild,
		"POST /v2/templates":                        s.requestBuild,
		"GET /templates/{id}/files/{hash}":          s.files,
		"PUT /templates/{id}/files/{hash}":          s.putFiles,
		"POST /v2/templates/{id}/builds/{build}":    s.startBuild,
		"GET /templates/{id}/builds/{build}/status": s.buildStatus,
		"POST /templates/tags":                      s.assignTags,
		"DELETE /templates/tags":                    s.removeTags,
		"GET /templates":                            s.templates,
		"GET /templates/{id}/{part}":                s.partOfTemplate,

		"POST /templates":          lacks("this older way to build templates; use a newer release of the client, or hutch build and hutch template"),
		"PATCH /v2/templates/{id}": lacks("templates that all can use; share one with hutch template"),
		"GET /teams":               lacks("teams"),
		"POST /access-tokens":      lacks("access tokens of people; create a token with hutch token create"),
		"POST /api-keys":           lacks("keys made over E2B's API; create a token with hutch token create"),
	}
}

// lacks refuses a route, and names its feature.
func lacks(what string) handler {
	return func(http.ResponseWriter, *http.Request) (int, any, error) {
		return 0, nil, hutch.Errorf(hutch.Unsupported, "this server does not have %s", what)
	}
}

// ServeHTTP serves the control plane at the paths of E2B, without Prefix.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.api.ServeHTTP(w, r.WithContext(caller.WithSurface(r.Context(), "e2b")))
}

// fail answers with an error, and logs details that the answer hides.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	kind := hutch.KindOf(err)
	if kind == hutch.Internal && !errors.Is(err, context.Canceled) {
		s.log.Error("call", "request", r.Method+" "+r.URL.Path, "err", err, "cause", hutch.AsError(err).Cause)
	}
	Refuse(w, seam.Status(kind), err)
}

// Refuse answers with an error in E2B's format; the guard also uses it to refuse E2B's clients. These clients try again
// only if the answer says when.
func Refuse(w http.ResponseWriter, status int, err error) {
	e := hutch.AsError(err)
	if after, ok := e.RetryAfter(); ok {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	seam.Refuse(w, status, e.Message)
}

func answer(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // an error means that the client has disconnected
}

// head returns the beginning of a stranger's text, for a message.
func head(text string) string { return text[:min(len(text), 100)] }

// Package rest offers a hutch.Service over HTTP: requests and answers are JSON, output is sent while it is printed by
// server-sent events or WebSocket, and errors are problem details.
//
// It is strict about input: unknown fields and parameters are refused by name. Every write has a deadline, so a client
// that stops reading blocks its own program for a while and is then disconnected. This package does not decide who can
// call: package guard does, in front of the handler.
package rest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/problem"
	"hutch/internal/watchlink"
)

// Options configure a handler; the zero value works.
type Options struct {
	// Secrets, when set, stores secrets.
	Secrets hutch.Secrets
	Log     *slog.Logger
	// Stall is how long a client can leave data unread before it is disconnected; default 5 minutes.
	Stall time.Duration
	// Tokens and Sharing are served if they are set; otherwise their requests are Unsupported.
	Tokens  hutch.Tokens
	Sharing hutch.Sharing
	// The same applies to Backups, Images, Volumes, Accounts, Owners, Nodes, SSH, Pools, Checkpoints, Examiner,
	// Timelines, Histories and Audit.
	Backups     hutch.Backups
	Images      hutch.Images
	Volumes     hutch.Volumes
	Accounts    hutch.Accounts
	Owners      hutch.Owners
	Nodes       hutch.Nodes
	SSH         hutch.SSH
	Pools       hutch.Pools
	Checkpoints hutch.Checkpoints
	Examiner    hutch.Examiner
	Audit       audit.Reader

	Timelines hutch.Timelines
	Histories hutch.Histories
	// Links shares terminals by links; if it is nil, requests for that are Unsupported.
	Links *watchlink.Links
	// Version is the answer of GET /v1/version.
	Version hutch.Version
	// Origins are the origins of web pages that can open a WebSocket, in addition to the server's own.
	Origins []string
}

// Handler serves the API under /v1/.
type Handler struct {
	svc         hutch.Service
	tokens      hutch.Tokens
	sharing     hutch.Sharing
	vault       hutch.Secrets
	backups     hutch.Backups
	images      hutch.Images
	volumes     hutch.Volumes
	accounts    hutch.Accounts
	owners      hutch.Owners
	nodes       hutch.Nodes
	ssh         hutch.SSH
	pools       hutch.Pools
	checkpoints hutch.Checkpoints
	examiner    hutch.Examiner
	audit       audit.Reader
	timeline    hutch.Timelines
	histories   hutch.Histories
	links       *watchlink.Links
	version     hutch.Version
	log         *slog.Logger
	stall       time.Duration
	sockets     websocket.AcceptOptions
	mux         *http.ServeMux
	table       []Route

	answers answers // answers to creates with an Idempotency-Key

	ctx       context.Context // done when the handler closes
	close     context.CancelCauseFunc
	cut       context.Context // done when the time for last messages to clients is over
	cancelCut context.CancelFunc
	calls     sync.WaitGroup
}

// closeTimeout is how long a client has to read the end of its WebSocket when the handler closes.
const closeTimeout = 3 * time.Second

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, tokens: opt.Tokens, sharing: opt.Sharing, vault: opt.Secrets, backups: opt.Backups, images: opt.Images, volumes: opt.Volumes, accounts: opt.Accounts, owners: opt.Owners, nodes: opt.Nodes, ssh: opt.SSH, pools: opt.Pools, checkpoints: opt.Checkpoints, examiner: opt.Examiner, audit: opt.Audit, timeline: opt.Timelines, histories: opt.Histories, links: opt.Links, version: opt.Version, mux: http.NewServeMux(),
		log:   cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
		stall: cmp.Or(opt.Stall, 5*time.Minute), sockets: socketOptions(opt.Origins),
	}
	h.ctx, h.close = context.WithCancelCause(context.Background())
	h.cut, h.cancelCut = context.WithCancel(context.Background())
	h.route()
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, hutch.Errorf(hutch.NotFound, "there is nothing at %.200q: see /v1/docs for all paths of the API", r.URL.Path))
	})
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.calls.Add(1)
	defer h.calls.Done()
	ctx, end := caller.Until(caller.WithSurface(r.Context(), "rest"), h.ctx)
	defer end()
	h.mux.ServeHTTP(w, r.WithContext(ctx))
}

// Close ends the open calls, and waits until they have ended. http.Server.Shutdown is not enough: it waits for open
// calls instead of ending them, and does not know WebSockets. Call Close when the server no longer accepts connections.
// A WebSocket whose client does not read is cut after closeTimeout; other connections must be closed by their
// http.Server.
func (h *Handler) Close() {
	h.close(hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment"))
	defer h.cancelCut()
	defer time.AfterFunc(closeTimeout, h.cancelCut).Stop()
	h.calls.Wait()
}

// errGone ends the work for a client that disconnected or stopped reading.
var errGone = errors.New("the client has gone")

// fail answers with an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.describe(r, err).Write(h.writer(w, r))
}

// describe returns the problem details for err, and logs the details of err that the client does not get.
func (h *Handler) describe(r *http.Request, err error) problem.Details {
	switch cause := context.Cause(r.Context()); {
	case cause != nil && hutch.KindOf(err) != hutch.Invalid:
		return problem.New(cause) // the client has disconnected, or the server is closing
	case errors.Is(err, errTooLarge):
		return withStatus(err, http.StatusRequestEntityTooLarge)
	case hutch.KindOf(err) == hutch.Internal && !errors.Is(err, errGone):
		h.log.Error("call", "request", r.Method+" "+r.URL.Path, "err", err, "cause", hutch.AsError(err).Cause)
	}
	return problem.New(err)
}

// withStatus returns the problem for an error with one of the few statuses that no kind of error has.
func withStatus(err error, status int) problem.Details {
	d := problem.New(err)
	d.Status, d.Title = status, http.StatusText(status)
	return d
}

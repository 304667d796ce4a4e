// Package rest offers a hutch.Service over HTTP: JSON in and out, output as it
// is printed by server-sent events or WebSocket, errors as problem details.
//
// It is strict about what it reads (unknown fields and parameters are refused
// by name) and patient with nobody: every write has a deadline, so a client
// that stops reading holds up its own program for a while and then loses it.
// Who may call is not decided here; the handler is put behind a guard.
package rest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/problem"
)

// Options are what a handler is made from; the zero value works.
type Options struct {
	// Secrets, when set, keeps secrets.
	Secrets hutch.Secrets
	Log     *slog.Logger
	// Stall is how long a client may leave what is sent to it unread before
	// it counts as gone; default 5 minutes.
	Stall time.Duration
	// Tokens and Sharing are served too; without them, such requests are
	// Unsupported.
	Tokens  hutch.Tokens
	Sharing hutch.Sharing
	// Backups, Accounts, Pools and Audit likewise.
	Backups  hutch.Backups
	Accounts hutch.Accounts
	Pools    hutch.Pools
	Audit    audit.Reader
	// Version is what GET /v1/version answers.
	Version hutch.Version
}

// Handler serves the API under /v1/.
type Handler struct {
	svc      hutch.Service
	tokens   hutch.Tokens
	sharing  hutch.Sharing
	vault    hutch.Secrets
	backups  hutch.Backups
	accounts hutch.Accounts
	pools    hutch.Pools
	audit    audit.Reader
	version  hutch.Version
	log      *slog.Logger
	stall    time.Duration
	mux      *http.ServeMux
	table    []Route

	answers answers // of creates with an Idempotency-Key

	ctx   context.Context // done when the handler closes
	close context.CancelCauseFunc
	calls sync.WaitGroup
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	h := &Handler{
		svc: svc, tokens: opt.Tokens, sharing: opt.Sharing, vault: opt.Secrets, backups: opt.Backups, accounts: opt.Accounts, pools: opt.Pools, audit: opt.Audit, version: opt.Version, mux: http.NewServeMux(),
		log:   cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
		stall: cmp.Or(opt.Stall, 5*time.Minute),
	}
	h.ctx, h.close = context.WithCancelCause(context.Background())
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
	from := audit.OriginOf(r.Context())
	from.Surface = "rest"
	ctx, cancel := context.WithCancelCause(audit.WithOrigin(r.Context(), from))
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })()
	h.mux.ServeHTTP(w, r.WithContext(ctx))
}

// Close ends the calls under way, which http.Server.Shutdown would wait for or,
// if they are WebSockets, not know of; and waits until they have ended. Call it
// when the server no longer accepts connections.
func (h *Handler) Close() {
	h.close(hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment"))
	h.calls.Wait()
}

// errGone ends what runs for a client that left or no longer reads.
var errGone = errors.New("the client has gone")

// fail answers with an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.describe(r, err).Write(h.writer(w, r))
}

// describe is the problem that err is, after logging what it will not tell.
func (h *Handler) describe(r *http.Request, err error) problem.Details {
	switch cause := context.Cause(r.Context()); {
	case cause != nil && hutch.KindOf(err) != hutch.Invalid:
		return problem.New(cause) // the client has gone, or we are closing
	case errors.Is(err, errTooLarge):
		return withStatus(err, http.StatusRequestEntityTooLarge)
	case hutch.KindOf(err) == hutch.Internal && !errors.Is(err, errGone):
		h.log.Error("call", "request", r.Method+" "+r.URL.Path, "err", err, "cause", hutch.AsError(err).Cause)
	}
	return problem.New(err)
}

// withStatus is for the few statuses that HTTP has and no kind stands for.
func withStatus(err error, status int) problem.Details {
	d := problem.New(err)
	d.Status, d.Title = status, http.StatusText(status)
	return d
}

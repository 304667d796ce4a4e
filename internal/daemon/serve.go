package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/coding"
	"hutch/internal/compat/bridge"
	"hutch/internal/compat/dify"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/librechat"
	"hutch/internal/compat/openterminal"
	"hutch/internal/compat/ragflow"
	"hutch/internal/conversation"
	"hutch/internal/guard"
	"hutch/internal/linux/pressure"
	"hutch/internal/listen"
	"hutch/internal/mcp"
	"hutch/internal/membudget"
	"hutch/internal/problem"
	"hutch/internal/rest"
)

// closeTime is how long requests can take to end, and after them the engine.
const closeTime = 10 * time.Second

// lastWords is how long a client has to read the end of its answer. Without this limit, a client that does not read
// would delay the end for minutes.
const lastWords = 3 * time.Second

// Serve answers requests until ctx is done. It is called once; Close follows.
func (d *Daemon) Serve(ctx context.Context) error {
	s := d.surfaces()
	memory := forCallers(pressure.Total())
	handler, guarded, end := d.handler(s, memory)
	defer end()
	base, cut := context.WithCancel(context.Background())
	defer cut()
	hs := d.httpServer(handler, base)
	endRAGFlow := d.serveRAGFlow(guarded, base)
	endSSH := d.serveSSH(memory)
	defer endSSH()
	failed := make(chan error, 1)
	go func() { failed <- d.accept(hs) }()
	select {
	case err := <-failed:
		endRAGFlow(context.Background())
		return err
	case <-ctx.Done():
	}
	d.end(context.Cause(ctx))
	d.sayEnd()
	last, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	d.listener.Close()
	defer time.AfterFunc(lastWords, func() { hs.Close() }).Stop()
	s.mcp.Close(last)
	s.rest.Close()
	endSSH()
	d.closeForeign(s.foreign)
	cut() // ends the remaining requests, and with them the work for their clients
	endRAGFlow(last)
	hs.Shutdown(last)
	hs.Close()
	<-failed
	return nil
}

// httpServer returns the server of the main address. Its requests end when base does.
func (d *Daemon) httpServer(h http.Handler, base context.Context) *http.Server {
	return &http.Server{
		Handler:           d.listener.Handler(h),
		ConnContext:       d.listener.Context,
		TLSConfig:         d.tls,
		Protocols:         listen.Protocols(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
}

// accept answers connections until the server is shut down.
func (d *Daemon) accept(hs *http.Server) error {
	if hs.TLSConfig == nil {
		return hs.Serve(d.listener)
	}
	return hs.ServeTLS(d.listener, "", "")
}

// closeForeign ends the calls of the APIs of other products.
func (d *Daemon) closeForeign(apis []foreignAPI) {
	if d.endE2B != nil {
		d.endE2B()
	}
	for _, f := range apis {
		if f.close != nil {
			f.close()
		}
	}
}

func (d *Daemon) sayEnd() {
	words := "ending; sandboxes keep running (hutch down ends them)"
	switch {
	case d.cfg.Sandboxes.DestroyAll:
		words = "ending; all sandboxes are destroyed"
	case d.cfg.Sandboxes.SleepAll:
		words = "ending; all sandboxes are put to sleep"
	}
	d.log.Info(words, "cause", context.Cause(d.life))
}

// surfaces are the APIs for clients.
type surfaces struct {
	mcp  *mcp.Handler
	rest *rest.Handler

	foreign []foreignAPI
}

func (d *Daemon) surfaces() surfaces {
	opt := mcp.Options{Version: d.cfg.Version.Version, Log: d.log, OnlyConversations: d.cfg.Conversations.Only, Agents: d.policy}
	if !d.cfg.Conversations.NoTools {
		opt.Conversations = d.talks
	}
	return surfaces{
		foreign: d.foreignAPIs(),

		mcp: mcp.NewHandler(d.policy, opt),
		rest: rest.NewHandler(d.policy, rest.Options{
			Tokens: d.policy, Sharing: d.policy, Secrets: d.policy, Backups: d.policy, Images: d.policy,
			Volumes: d.policy, Accounts: d.policy, Owners: d.policy, Nodes: d.policy, SSH: d.policy, Pools: d.policy,
			Checkpoints: d.policy, Examiner: d.policy, Audit: d.policy, Timelines: d.policy, Histories: d.policy, Links: d.links,
			Log: d.log, Version: d.cfg.Version, Origins: d.cfg.Origins,
		}),
	}
}

// handler returns the handler of all requests. guarded is the handler of all requests except those for previews.
// Requests pass the guard before they reach their surface; requests for previews do not pass the guard. end closes
// everything that the handlers keep open.
func (d *Daemon) handler(s surfaces, memory *membudget.Budget) (handler, guarded http.Handler, end func()) {
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.mcp)
	if !d.cfg.Conversations.Only {
		mux.Handle("/v1/", s.rest)
		mux.Handle("/v1", s.rest)
		agents := coding.NewHandler(d.policy)
		mux.Handle(coding.Prefix, agents)
		mux.Handle(coding.Prefix+"/", agents)
		mux.Handle("/", s.rest) // for unknown paths, it answers that they do not exist
	}
	d.talks.Routes(mux)
	d.monitorRoutes(mux)
	shape := foreignRoutes(mux, s.foreign)
	opt := guard.Options{
		Metadata: d.issuerRoutes(mux), Check: d.tokens.Check, Requests: d.requests, Refuse: refuse(shape), Shape: shape,
		Hosts: d.cfg.Hosts, Origins: d.cfg.Origins, Unbounded: s.unbounded, Open: d.isOpen, Budget: memory, Claim: listen.Claim, Log: d.requestLog(),
	}
	inside := d.described(mux)
	if d.console != nil {
		lost := isLost(mux)
		opt.Session, inside = d.sessions(mux), d.console.Inside(d.console.Lost(inside, lost))
		opt.Open = func(r *http.Request) bool { return d.isOpen(r) || lost(r) }
	}
	if d.e2b != nil {
		opt.Known, opt.Named = e2b.Known, d.e2b.Named
		inside = d.e2b.Inside(inside) // outermost, because there is no console at E2B's host names
	}
	guarded = guard.New(inside, opt)
	guarded = openterminal.Front(d.libreChatUsers(guarded), listen.Claim)
	shown := d.previews(guarded)
	return d.front(guarded, shown), guarded, func() {
		shown.Close()
		if d.e2bPorts != nil {
			d.e2bPorts.Close()
		}
	}
}

// unbounded reports whether the body of a request can have any size.
func (s surfaces) unbounded(r *http.Request) bool {
	return rest.Uploads(r) || coding.Uploads(r) || e2b.Ours(r) && r.URL.Path == "/files" || e2b.Uploads(r) ||
		slices.ContainsFunc(s.foreign, func(f foreignAPI) bool { return f.uploads != nil && f.uploads(r) })
}

// issuerRoutes adds the routes by which MCP clients learn which issuer identifies people (RFC 9728).
func (d *Daemon) issuerRoutes(mux *http.ServeMux) (metadata string) {
	if d.people == nil {
		return ""
	}
	answer := func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, d.people.Metadata()) }
	mux.HandleFunc("GET "+auth.MetadataPath, answer)
	mux.HandleFunc("GET "+auth.MetadataPath+"/mcp", answer)
	return d.people.MetadataURL()
}

// isOpen reports whether a request needs no token.
func (d *Daemon) isOpen(r *http.Request) bool {
	if e2b.Ours(r) { // the path can mean something else under other host names
		return e2b.Open(r)
	}
	return d.console != nil && d.console.IsOpen(r) || r.URL.Path == rest.WatchPath || conversation.Open(r) || bridge.Open(r) || dify.Open(r) || ragflow.Open(r) || librechat.Open(r) || openterminal.Open(r) || r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, auth.MetadataPath)
}

// forCallers returns the memory budget for data that callers are sending or have not read yet. It is a 32nd of the
// machine's memory, because some of the data exists several times while it is converted. One owner can use a quarter of
// the budget, but at least as much as the largest calls need.
func forCallers(memory int64) *membudget.Budget {
	total := max(memory/32, 256<<20)
	return membudget.New(int(total), int(max(total/4, 128<<20)))
}

// refuse answers a request over a limit in the error format of its API.
func refuse(shape func(*http.Request) guard.Refusal) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		if r.URL.Path == "/mcp" {
			mcp.Refuse(w, r, err)
			return
		}
		if answer := shape(r); answer != nil {
			problem.RetryAfter(w.Header(), err)
			answer(w, problem.Status(hutch.KindOf(err)), err)
			return
		}
		problem.Write(w, err)
	}
}

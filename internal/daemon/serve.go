package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"hutch/internal/auth"
	"hutch/internal/conversation"
	"hutch/internal/guard"
	"hutch/internal/linux/pressure"
	"hutch/internal/listen"
	"hutch/internal/mcp"
	"hutch/internal/preview"
	"hutch/internal/problem"
	"hutch/internal/rest"
	"hutch/internal/room"
)

// closeTime is how long requests, and then the engine, can take to end.
const closeTime = 10 * time.Second

// Serve answers requests until ctx is done. It is called once; Close follows.
func (d *Daemon) Serve(ctx context.Context) error {
	s := d.surfaces()
	handler := d.handler(s)
	defer handler.Close()
	base, cut := context.WithCancel(context.Background())
	defer cut()
	hs := &http.Server{
		Handler:           d.listener.Handler(handler),
		ConnContext:       d.listener.Context,
		TLSConfig:         d.tls,
		Protocols:         listen.Protocols(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() {
		if hs.TLSConfig == nil {
			failed <- hs.Serve(d.listener)
		} else {
			failed <- hs.ServeTLS(d.listener, "", "")
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	d.end(context.Cause(ctx))
	d.sayEnd()
	end, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	d.listener.Close()
	s.mcp.Close(end)
	s.rest.Close()
	cut() // what still runs for a client ends with its request
	hs.Shutdown(end)
	hs.Close()
	<-failed
	return nil
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

// surfaces are what clients speak to.
type surfaces struct {
	mcp  *mcp.Handler
	rest *rest.Handler
}

func (d *Daemon) surfaces() surfaces {
	opt := mcp.Options{Version: d.cfg.Version.Version, Log: d.log, OnlyConversations: d.cfg.Conversations.Only}
	if !d.cfg.Conversations.NoTools {
		opt.Conversations = d.talks
	}
	return surfaces{
		mcp:  mcp.NewHandler(d.policy, opt),
		rest: rest.NewHandler(d.policy, rest.Options{Tokens: d.policy, Sharing: d.policy, Secrets: d.policy, Backups: d.policy, Images: d.policy, Volumes: d.policy, Accounts: d.policy, Pools: d.policy, Audit: d.policy, Log: d.log, Version: d.cfg.Version}),
	}
}

// handler leads a request to its surface, past the guard; requests for previews do not
// pass it.
func (d *Daemon) handler(s surfaces) *preview.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.mcp)
	if !d.cfg.Conversations.Only {
		mux.Handle("/v1/", s.rest)
		mux.Handle("/v1", s.rest)
		mux.Handle("/", s.rest) // says that nothing is there
	}
	d.talks.Routes(mux)
	d.monitorRoutes(mux)
	return d.previews(guard.New(mux, guard.Options{
		Metadata: d.issuerRoutes(mux), Check: d.tokens.Check, Requests: d.requests, Refuse: refuse,
		Hosts: d.cfg.Hosts, Origins: d.cfg.Origins, Unbounded: rest.Uploads, Open: isOpen, Room: forCallers(pressure.Total()), Claim: listen.Claim, Log: d.requestLog(),
	}))
}

// issuerRoutes answer MCP clients who vouches for people: RFC 9728.
func (d *Daemon) issuerRoutes(mux *http.ServeMux) (metadata string) {
	if d.people == nil {
		return ""
	}
	answer := func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, d.people.Metadata()) }
	mux.HandleFunc("GET "+auth.MetadataPath, answer)
	mux.HandleFunc("GET "+auth.MetadataPath+"/mcp", answer)
	return d.people.MetadataURL()
}

// isOpen reports whether anyone can make a request.
func isOpen(r *http.Request) bool {
	return conversation.Open(r) || r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, auth.MetadataPath)
}

// forCallers is how much memory the daemon has for what its callers send and have
// not read yet: a 32nd of the machine's, as some of it is there several times
// while it is put into its form. One owner has a quarter of it, and at least
// what the largest calls need.
func forCallers(memory int64) *room.Room {
	total := max(memory/32, 256<<20)
	return room.New(int(total), int(max(total/4, 128<<20)))
}

// refuse answers a request over a limit in the form of its surface.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.URL.Path == "/mcp" {
		mcp.Refuse(w, r, err)
		return
	}
	problem.Write(w, err)
}

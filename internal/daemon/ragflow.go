package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"hutch"
	"hutch/internal/compat/ragflow"
	"hutch/internal/listen"
)

// listenRAGFlow opens the address where RAGFlow needs no token, if one was given.
func (d *Daemon) listenRAGFlow(ctx context.Context) error {
	address := d.cfg.Chats.RAGFlow
	if address == "" {
		return nil
	}
	if d.cfg.Chats.RAGFlowToken == "" {
		return hutch.Errorf(hutch.Invalid, "--ragflow-listen needs a token that its runs are made with: give a file with one as --ragflow-token-file")
	}
	if at, err := netip.ParseAddrPort(address); err != nil || !isNear(at.Addr()) {
		return hutch.Errorf(hutch.Invalid, "--ragflow-listen is %.60q: anybody who reaches it can run code, so give an address of loopback or of a private network, with a port, such as 127.0.0.1:9385", address)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, family(address), address)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: choose another address with --ragflow-listen", err)
	}
	d.ragflow = listen.NewGate(l, listen.GateOptions{Most: d.cfg.Connections})
	d.onClose(func() error {
		if err := d.ragflow.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	d.log.Warn("RAGFlow needs no token at this address", "address", l.Addr().String())
	return nil
}

// isNear reports whether an address is on this machine or in a private network.
func isNear(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()
}

// serveRAGFlow answers at RAGFlow's address until the returned function is called.
func (d *Daemon) serveRAGFlow(guarded http.Handler, base context.Context) (end func(context.Context)) {
	if d.ragflow == nil {
		return func(context.Context) {}
	}
	hs := &http.Server{
		Handler: d.ragflow.Handler(d.withoutToken(guarded)), ConnContext: d.ragflow.Context, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(d.ragflow) }()
	return func(ctx context.Context) {
		hs.Shutdown(ctx)
		hs.Close()
		<-ended
	}
}

// withoutToken passes requests of RAGFlow on with the configured token. Web pages cannot use it: browsers send an
// origin with every POST, and no origin is accepted here, not even one that is allowed to call the server with a token.
// The guard still checks the host name.
func (d *Daemon) withoutToken(guarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !isNear(from.Addr()) {
			ragflow.Refuse(w, http.StatusForbidden, hutch.Errorf(hutch.Denied, "this address answers clients of private networks only"))
			return
		}
		if len(r.Header.Values("Origin")) > 0 {
			ragflow.Refuse(w, http.StatusForbidden, hutch.Errorf(hutch.Denied, "this address answers programs only, and no page in a browser: a page calls the server's own address, with a token"))
			return
		}
		if r.URL.Path != "/run" && r.URL.Path != "/healthz" {
			ragflow.Refuse(w, http.StatusNotFound, hutch.Errorf(hutch.NotFound, "there is no such route: RAGFlow calls run and healthz"))
			return
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = ragflow.Prefix+r.URL.Path, "", ""
		r.RequestURI = r.URL.Path
		r.Header.Set("Authorization", "Bearer "+d.cfg.Chats.RAGFlowToken)
		guarded.ServeHTTP(w, r)
	})
}

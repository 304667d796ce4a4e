package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/listen"
	"hutch/internal/membudget"
	"hutch/internal/problem"
	"hutch/internal/rest"
)

// door serves REST about this node to other nodes, for callers that the other node has authenticated. It has its own
// listener, which speaks TLS 1.3 and trusts only the fleet's authority.
type door struct {
	f      *Fleet
	rest   *rest.Handler
	budget *membudget.Budget
	log    *slog.Logger
	server *http.Server
	ended  chan struct{}
	cut    context.CancelFunc
	joins  chan struct{} // limits how many machines join at once, so that strangers cannot keep the database busy
	slow   slowRequests
}

const (
	mostJoins = 16
	// mostOfNode limits the connections of one node; each WebSocket has its own connection. mostConns limits all
	// connections; beyond it, connections of strangers are closed first.
	mostOfNode = 4096
	mostConns  = 2 * mostOfNode
)

// joinBody limits the request of a stranger, and mostReads how many of them are read at once. An honest machine sends
// its request at once, and needs only a fraction of these bytes.
const (
	joinBody  = 16 << 10
	mostReads = 64
)

// slowRequests are the requests of strangers that are being read. If there are too many, the oldest request is cut, so
// that strangers who send slowly do not use the memory and the connections that nodes need.
type slowRequests struct {
	mu   sync.Mutex
	cuts []*func() // oldest first
}

// begin adds a request, until end is called. cut is called at most once, and not after end.
func (s *slowRequests) begin(cut func()) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cuts) >= mostReads {
		(*s.cuts[0])()
		s.cuts = s.cuts[1:]
	}
	s.cuts = append(s.cuts, &cut)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cuts = slices.DeleteFunc(s.cuts, func(other *func()) bool { return other == &cut })
	}
}

// open starts to serve the door on l.
func (f *Fleet) open(l net.Listener, here rest.Options, memory *membudget.Budget) error {
	pair, err := f.opt.Identity.pair()
	if err != nil {
		return err
	}
	here.Log = f.log
	if here.Images != nil {
		here.Images = residentImages{here.Images, f.resident}
	}
	base, cut := context.WithCancel(context.Background())
	d := &door{f: f, rest: rest.NewHandler(f.resident, here), budget: memory, log: f.log, ended: make(chan struct{}), cut: cut, joins: make(chan struct{}, mostJoins)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+joinPath, d.join)
	mux.HandleFunc("GET "+previewPath, d.inside(d.preview))
	mux.HandleFunc("/", d.inside(d.rest.ServeHTTP))
	gate := listen.NewGate(l, listen.GateOptions{Most: mostConns, Share: mostOfNode})
	d.server = &http.Server{
		Handler: gate.Handler(mux), ConnContext: gate.Context,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientCAs: f.opt.Identity.pool(),
			ClientAuth: tls.VerifyClientCertIfGiven, // a joining machine has no certificate yet
		},
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000, MaxReceiveBufferPerConnection: 64 << 20, MaxReceiveBufferPerStream: 1 << 20,
			SendPingTimeout: pingTimeout, PingTimeout: pingTimeout,
		},
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 20,
		ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
	}
	// The whole chain is sent, because a joining machine knows only the fingerprint of the authority.
	authority, err := f.opt.Identity.authorityDER()
	if err != nil {
		return err
	}
	pair.Certificate = append(pair.Certificate, authority)
	d.server.TLSConfig.Certificates = []tls.Certificate{pair}
	f.door = d
	go func() {
		defer close(d.ended)
		if err := d.server.ServeTLS(gate, "", ""); !errors.Is(err, http.ErrServerClosed) {
			f.log.Error("the door between nodes closed", "err", err)
		}
	}()
	return nil
}

func (d *door) close() {
	d.rest.Close()
	d.cut()
	d.server.Close()
	<-d.ended
}

// inside admits calls of other nodes. A removed node is refused at once, even with a valid certificate. While this node
// may not serve, it refuses other nodes too.
func (d *door) inside(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, life, err := d.caller(r)
		if err != nil {
			problem.Write(w, err)
			return
		}
		owner := ""
		if c.Owner != nil {
			owner = c.Owner.ID
		}
		account, free := d.budget.Open(owner)
		defer free()
		c.Budget = account
		if !rest.Uploads(r) && r.Body != nil {
			r.Body = &charged{r.Body, account.Take}
		}
		// The calls of another node end when that node is removed.
		ctx, end := caller.Until(caller.With(r.Context(), c), life)
		defer end()
		from, _ := peerOf(r.TLS)
		next(w, r.WithContext(withFront(ctx, from)))
	}
}

// caller returns the caller for whom another node calls, and a context that ends when the other node is removed.
func (d *door) caller(r *http.Request) (c caller.Caller, life context.Context, err error) {
	from, print := peerOf(r.TLS)
	if from == "" {
		return c, nil, hutch.Errorf(hutch.Denied, "this address is for the nodes of a fleet: clients use the address of --listen")
	}
	if life, err = d.f.node.member(from, print); err != nil {
		return c, nil, err
	}
	if !listen.Claim(r.Context(), "node "+from) {
		return c, nil, hutch.Errorf(hutch.Exhausted, "the node %s has %d connections here, the most: try again in a moment", from, mostOfNode).With("limit", "connections")
	}
	if err := d.f.node.serving(); err != nil {
		return c, nil, err
	}
	c, err = openCaller(r.Header.Get(header))
	return c, life, err
}

// peerOf returns the node of a verified certificate, and the certificate's fingerprint.
func peerOf(s *tls.ConnectionState) (node, print string) {
	if s == nil || len(s.VerifiedChains) == 0 {
		return "", ""
	}
	leaf := s.VerifiedChains[0][0]
	if len(leaf.DNSNames) != 1 {
		return "", ""
	}
	node, ok := strings.CutSuffix(leaf.DNSNames[0], "."+domain)
	if !ok {
		return "", ""
	}
	return node, printOf(leaf.Raw)
}

// join admits a new node. A stranger can send its request slowly, so the request is read completely before it counts
// towards the limit of joins.
func (d *door) join(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(10 * time.Second))
	end := d.slow.begin(func() { rc.SetReadDeadline(time.Now()) })
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, joinBody))
	end()
	var j joining
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err != nil {
		problem.Write(w, hutch.Errorf(hutch.Invalid, "this is not what `hutch node join` sends").Because(err))
		return
	}
	select {
	case d.joins <- struct{}{}:
		defer func() { <-d.joins }()
	default:
		problem.Write(w, hutch.Errorf(hutch.Unavailable, "several machines join just now: try again in a moment"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	id, err := d.f.dir.admit(ctx, d.f.opt.Identity, j)
	if err != nil {
		d.log.Warn("a machine could not join", "node", hutchText(j.Node), "remote", r.RemoteAddr, "err", err, "cause", hutch.AsError(err).Cause)
		problem.Write(w, err)
		return
	}
	d.log.Info("a machine joined the fleet", "node", id.Node, "remote", r.RemoteAddr)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(id)
}

// hutchText shortens the text of a stranger for the log.
func hutchText(s string) string { return s[:min(len(s), hutch.MaxID)] }

// Package broker sends requests of sandboxes on with credentials that the
// sandboxes do not have. It is the host to the program inside, by a certificate
// of its own [Authority], and a client to the real one, by verified TLS. What
// goes out is written anew from what was understood of the request; in what
// comes back every credential that was sent is masked, so that a host that
// repeats what it is told tells the program nothing.
//
// It decides nothing: which connections are brokered, and where they go, is
// said by who hands them over.
package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"hutch/internal/listen"
	"hutch/internal/secret"
)

// Options are what a broker is made from.
type Options struct {
	Authority *Authority
	// Roots are the authorities of real hosts; nil for those of this machine.
	Roots *x509.CertPool
	Log   *slog.Logger
}

// Broker serves connections. It is safe for concurrent use.
type Broker struct {
	authority *Authority
	client    *tls.Config // towards the real host
	log       *slog.Logger
}

// Route is the way out of one connection.
type Route struct {
	// Sandbox is whose connection it is, for the log.
	Sandbox string
	// Host and Port are where the program believes to be.
	Host string
	Port uint16
	// Credentials are those for the host, at the moment, and what masks them.
	// Without any, requests are refused.
	Credentials func() ([]secret.Credential, *secret.Redactor)
	// Dial opens a connection to the real host.
	Dial func(context.Context) (net.Conn, error)
	// Seen is told of every request, before its answer goes inside; may be nil.
	Seen func(Use)
}

// Use is one request.
type Use struct {
	Began   time.Time
	Method  string
	Path    string
	Status  int      // of the answer, ours or the host's
	Secrets []string // the names of those that were sent
	Err     error    // why no answer came of the host
}

const (
	maxHeader  = 64 << 10 // bytes
	maxStreams = 32       // requests of one connection at once
	// patience is for all that a machine does at once: a handshake, a header.
	patience = 10 * time.Second
	// thinking is how long a host may take before it begins to answer.
	thinking = 15 * time.Minute
	resting  = time.Minute // of a connection between requests
)

// New returns a broker.
func New(opt Options) *Broker {
	return &Broker{
		authority: opt.Authority,
		client:    &tls.Config{RootCAs: opt.Roots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(maxLeaves)},
		log:       cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
	}
}

// Serve is the host to a connection that begins with a TLS handshake, until it
// ends or ctx is done. It closes the connection.
func (b *Broker) Serve(ctx context.Context, conn net.Conn, to Route) {
	ctx, cancel := context.WithCancel(ctx)
	x := &exchange{Broker: b, Route: to}
	upstream := x.transport()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	srv := &http.Server{
		Handler:           x.handler(upstream),
		TLSConfig:         x.certified(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: patience,
		IdleTimeout:       resting,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	srv.ServeTLS(listen.Once(conn), "", "") // returns when the connection is closed
	cancel()
	x.busy.Lock() // and never unlocked: no request comes after the last
	upstream.CloseIdleConnections()
}

// exchange is a connection being served.
type exchange struct {
	*Broker
	Route
	busy sync.RWMutex // read by every request that is under way
}

// certified answers handshakes for the host, and for no other.
func (x *exchange) certified() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: true, // the next connection has other keys
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if !strings.EqualFold(hello.ServerName, x.Host) {
				return nil, fmt.Errorf("the handshake asks for %q, the connection is for %q", hello.ServerName, x.Host)
			}
			return x.authority.leaf(x.Host)
		},
	}
}

// transport has connections of this exchange alone.
func (x *exchange) transport() *http.Transport {
	client := x.client.Clone()
	client.ServerName = x.Host
	return &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return x.Dial(ctx) },
		TLSClientConfig:        client,
		TLSHandshakeTimeout:    patience,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxConnsPerHost:        maxStreams,
		IdleConnTimeout:        resting,
		ResponseHeaderTimeout:  thinking,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
}

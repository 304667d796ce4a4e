// Package broker forwards requests of sandboxes, with credentials that the sandboxes do not have. To the program inside
// it poses as the host, with a certificate of its own [authority.Authority]; to the real host it is a client, over
// verified TLS. It parses each request and writes a new one from the result. In answers it masks every credential that
// was sent, so that a host which repeats its input reveals nothing to the program.
//
// It makes no decisions: its caller chooses which connections are brokered, and their destinations.
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

	"hutch/internal/authority"
	"hutch/internal/listen"
	"hutch/internal/secret"
)

// Options configure a broker.
type Options struct {
	Authority *authority.Authority
	// Roots are the certificate authorities of real hosts; nil means those of this machine.
	Roots *x509.CertPool
	Log   *slog.Logger
}

// Broker serves connections. It is safe for concurrent use.
type Broker struct {
	authority *authority.Authority
	client    *tls.Config // towards the real host
	log       *slog.Logger
}

// Route describes where one connection goes.
type Route struct {
	// Sandbox is the sandbox of the connection, for the log.
	Sandbox string
	// Host and Port are the destination from the program's view.
	Host string
	Port uint16
	// Credentials returns the host's present credentials, and a redactor for them. Requests are refused if it returns
	// an error or no credentials.
	Credentials func() ([]secret.Credential, *secret.Redactor, error)
	// Begin is called before a request is sent, and the function that it returns when the request has ended; can be
	// nil. An error refuses the request, because there are too many at once.
	Begin func() (end func(), err error)
	// Dial opens a connection to the real host.
	Dial func(context.Context) (net.Conn, error)
	// Seen is called for every request, before the answer goes inside; can be nil.
	Seen func(Use)
}

// Use is one request.
type Use struct {
	Began   time.Time
	Method  string
	Path    string
	Status  int      // status of the answer, from the broker or the host
	Secrets []string // the names of the secrets that were sent
	Err     error    // why the host did not answer
}

const (
	maxHeader  = 64 << 10 // bytes
	maxStreams = 32       // requests of one connection at once
	// stepTimeout limits steps that do not wait for people: a handshake, a header.
	stepTimeout = 10 * time.Second
	// answerTimeout is how long a host can take before its answer begins.
	answerTimeout = 15 * time.Minute
	idleTimeout   = time.Minute // idle time of a connection between requests
)

const maxSessions = 256 // kept TLS sessions with real hosts

// New returns a broker.
func New(opt Options) *Broker {
	return &Broker{
		authority: opt.Authority,
		client:    &tls.Config{RootCAs: opt.Roots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(maxSessions)},
		log:       cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
	}
}

// Serve plays the host for a connection that begins with a TLS handshake, until it ends or ctx is done. It closes the
// connection.
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
		ReadHeaderTimeout: stepTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	srv.ServeTLS(listen.Once(conn), "", "") // returns when the connection is closed
	cancel()
	x.busy.Lock() // never unlocked, because no request follows the last
	upstream.CloseIdleConnections()
}

// exchange is a connection that is being served.
type exchange struct {
	*Broker
	Route
	busy sync.RWMutex // held for reading by every open request
}

// certified accepts handshakes for the host only.
func (x *exchange) certified() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: true, // the next connection can have other keys
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if !strings.EqualFold(hello.ServerName, x.Host) {
				return nil, fmt.Errorf("the handshake asks for %q, the connection is for %q", hello.ServerName, x.Host)
			}
			return x.authority.Leaf(x.Host)
		},
	}
}

// transport returns a transport whose connections belong only to this exchange.
func (x *exchange) transport() *http.Transport {
	client := x.client.Clone()
	client.ServerName = x.Host
	return &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return x.Dial(ctx) },
		TLSClientConfig:        client,
		TLSHandshakeTimeout:    stepTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxConnsPerHost:        maxStreams,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  answerTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
}

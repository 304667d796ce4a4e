package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/caller"
)

// peer is the client with which this node calls another node.
type peer struct {
	*client.Client
	info NodeInfo
	http *http.Client
}

// peers are the clients of other nodes, one for each node and address.
type peers struct {
	id *Identity

	mu  sync.Mutex
	all map[string]*peer // by node
}

const (
	dialTime = 5 * time.Second
	// pingTimeout is how long this node waits for the answer to a ping while a node with calls in progress is silent.
	pingTimeout = 10 * time.Second
)

// of returns the client for a node.
func (p *peers) of(info NodeInfo) (*peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.all[info.ID]; old != nil {
		if old.info.Address == info.Address && old.info.print == info.print && slices.Equal(old.info.abilities, info.abilities) {
			return old, nil
		}
		old.http.CloseIdleConnections()
	}
	pair, err := p.id.pair()
	if err != nil {
		return nil, err
	}
	t := newTransport(info, pair, p.id.pool())
	url := "https://" + info.ID + "." + domain // only a name: the transport knows the address
	fresh := &peer{Client: client.New(url, ""), info: info, http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	fresh.Client.HTTP = fresh.http
	if p.all == nil {
		p.all = map[string]*peer{}
	}
	p.all[info.ID] = fresh
	return fresh, nil
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		one.http.CloseIdleConnections()
	}
}

// transport makes the calls to one node: by HTTP/2 on shared connections, and by HTTP/1.1 for WebSockets, each on its
// own connection.
type transport struct {
	many, socket *http.Transport
	info         NodeInfo
}

func newTransport(info NodeInfo, pair tls.Certificate, pool *x509.CertPool) *transport {
	dial := net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}
	of := func(protocol string) *http.Transport {
		return &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := dial.DialContext(ctx, "tcp", info.Address)
				if err != nil {
					return nil, &connectError{err}
				}
				return conn, nil
			},
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: info.ID + "." + domain,
				NextProtos: []string{protocol}, ClientSessionCache: tls.NewLRUClientSessionCache(16),
				VerifyConnection: func(s tls.ConnectionState) error { // called after the chain was verified
					if printOf(s.PeerCertificates[0].Raw) != info.print {
						return hutch.Errorf(hutch.Denied, "what answers at %s has a certificate that the node %s had before it was removed", info.Address, info.ID)
					}
					return nil
				},
			},
			TLSHandshakeTimeout: 2 * dialTime, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64, DisableCompression: true,
		}
	}
	t := &transport{of("h2"), of("http/1.1"), info}
	t.many.ForceAttemptHTTP2 = true
	t.many.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingTimeout, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: 1 << 20}
	t.many.Protocols = new(http.Protocols)
	t.many.Protocols.SetHTTP2(true)
	t.socket.Protocols = new(http.Protocols)
	t.socket.Protocols.SetHTTP1(true)
	return t
}

// CloseIdleConnections is called by http.Client.
func (t *transport) CloseIdleConnections() {
	t.many.CloseIdleConnections()
	t.socket.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper. It adds the caller for whom the call is made.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := caller.From(r.Context())
	if err := t.info.refuse(r, c); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	text, err := sealCaller(c)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(header, text)
	by := t.many
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		by = t.socket
	}
	resp, err := by.RoundTrip(r)
	if err != nil {
		return nil, t.fault(r.Context(), err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && strings.Contains(resp.Header.Get("Content-Type"), "json") {
		resp.Body = &charged{resp.Body, c.Budget.Take}
	}
	return resp, nil
}

// connectError is the error of a failed connection, when the call has not reached the node.
type connectError struct{ error }

func (u *connectError) Unwrap() error { return u.error }

func (t *transport) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the node %s, which this is on, does not answer: try again in a moment; an administrator sees its state with `hutch node ls`", t.info.ID).
		With("node", t.info.ID).Because(err)
}

// charged counts an answer that is held in memory towards the caller's memory budget as the answer arrives.
type charged struct {
	io.ReadCloser
	take func(int) bool
}

var errNoRoom = hutch.Errorf(hutch.Exhausted, "the answers that wait for you to read them leave no room for this one: read those, or ask for less at a time").With("limit", "memory of answers")

func (c *charged) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if n > 0 && !c.take(n) {
		return 0, errNoRoom
	}
	return n, err
}

// plain returns the error of the call itself, which package client returns wrapped in an error of net/http.
func plain(err error) error {
	if _, ok := err.(*hutch.Error); ok || err == nil {
		return err
	}
	if e, ok := errors.AsType[*hutch.Error](err); ok {
		return e
	}
	return err
}

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest/outside"
)

// world is the outside: real servers on loopback, which the gateway's dial finds at public-looking addresses, and a
// DNS server that knows them.
type world struct {
	t     *testing.T
	roots *x509.CertPool
	cert  tls.Certificate

	mu      sync.Mutex
	servers map[string]string // what listens at address:port
	names   map[string][]netip.Addr
	asked   []string // names that the DNS server was asked for
	dns     string
}

// Names and addresses. shared serves two names, as a content network does.
const (
	allowedName = "api.example.com"
	evilName    = "evil.example.net"
	shared      = "203.0.113.10"
	evilAddr    = "203.0.113.66"
	resolverAt  = "10.0.0.1"
	hostAddr    = "203.0.113.200"
)

func newWorld(t *testing.T) *world {
	w := &world{t: t, servers: map[string]string{}, names: map[string][]netip.Addr{}, roots: x509.NewCertPool()}
	cert, authority := outside.Certify(t, allowedName, evilName, "*.example.com")
	w.cert = cert
	w.roots.AppendCertsFromPEM(authority)
	w.name(allowedName, shared)
	w.name(evilName, shared, evilAddr)
	w.serveDNS()
	for _, addr := range []string{shared, evilAddr} {
		w.web(addr)
	}
	return w
}

func (w *world) name(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = nil
	for _, a := range addrs {
		w.names[name] = append(w.names[name], netip.MustParseAddr(a))
	}
}

// web serves HTTP and TLS at an address: every page contains the requested host.
func (w *world) web(addr string) {
	page := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(rw, r, "http://"+evilName+"/", http.StatusFound)
		case "/stream":
			for r.Context().Err() == nil {
				fmt.Fprintln(rw, "tick")
				rw.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(rw, "%s %s %s%s", r.Host, r.Method, r.URL.RequestURI(), body)
		}
	})
	plain := httptest.NewServer(page)
	secure := httptest.NewUnstartedServer(page)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{w.cert}}
	secure.StartTLS()
	w.t.Cleanup(plain.Close)
	w.t.Cleanup(secure.Close)
	w.at(addr+":80", plain.Listener.Addr().String())
	w.at(addr+":8080", plain.Listener.Addr().String())
	w.at(addr+":443", secure.Listener.Addr().String())
	w.at(addr+":8443", secure.Listener.Addr().String())
}

func (w *world) at(addr, server string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[addr] = server
}

// serve answers connections at an address.
func (w *world) serve(addr string, answer func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c)
			}()
		}
	}()
	w.at(addr, l.Addr().String())
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	server := w.servers[addr]
	w.mu.Unlock()
	if server == "" {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, server)
}

// serveDNS answers for all names; the gateway must query only allowed ones.
func (w *world) serveDNS() {
	w.dns = outside.ServeNames(w.t, func(name string) ([]netip.Addr, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, name)
		addrs, ok := w.names[name]
		return addrs, ok
	})
}

// inside is a program in a sandbox: it has a resolver and connections, and does not know that there is a gateway.
type inside struct {
	*world
	g *Gateway
}

func (w *world) inside(mode hutch.NetworkMode, allow ...string) *inside {
	w.t.Helper()
	g, err := New(hutch.Network{Mode: mode, Allow: hutch.Rules(allow...)}, w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(g.Close)
	return &inside{w, g}
}

func (w *world) options() Options {
	return Options{
		Sandbox: "sb", Names: []netip.Addr{netip.MustParseAddr(resolverAt)}, Dial: w.dial,
		Resolver: NewResolver(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", w.dns)
		}),
		HostAddrs: func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.ParseIP(hostAddr), Mask: net.CIDRMask(24, 32)}}, nil
		},
	}
}

// flow is a connection that a program requests.
type flow struct {
	dst     netip.AddrPort
	network string
	once    sync.Once
	got     chan net.Conn // closed when the flow is refused
}

func (f *flow) Src() netip.AddrPort { return netip.AddrPort{} }
func (f *flow) Dst() netip.AddrPort { return f.dst }
func (f *flow) Refuse()             { f.once.Do(func() { close(f.got) }) }

func (f *flow) Accept() (net.Conn, error) {
	near, far, err := pair(f.network)
	if err != nil {
		return nil, err
	}
	f.once.Do(func() { f.got <- near })
	return far, nil
}

func (in *inside) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dst, err := netip.ParseAddrPort(address)
	if err != nil { // the address is a name
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		addrs, err := in.resolver().LookupNetIP(ctx, "ip4", host)
		if err != nil {
			return nil, err
		}
		return in.dial(ctx, network, net.JoinHostPort(addrs[0].String(), port))
	}
	f := &flow{dst: dst, network: network, got: make(chan net.Conn, 1)}
	go func() {
		if network == "udp" {
			in.g.UDP(in.t.Context(), f)
		} else {
			in.g.TCP(in.t.Context(), f)
		}
		f.Refuse()
	}()
	select {
	case c, ok := <-f.got:
		if !ok {
			return nil, syscall.ECONNREFUSED
		}
		in.t.Cleanup(func() { c.Close() })
		return c, nil
	case <-time.After(20 * time.Second):
		return nil, errors.New("nobody answered")
	}
}

func (in *inside) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return in.dial(ctx, network, resolverAt+":53")
	}}
}

func (in *inside) resolve(name string) error {
	_, err := in.resolver().LookupNetIP(in.t.Context(), "ip", name+".")
	return err
}

// client is a program's client of HTTP.
func (in *inside) client() *http.Client {
	tr := &http.Transport{DialContext: in.dial, TLSClientConfig: &tls.Config{RootCAs: in.roots}}
	in.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (in *inside) get(url string) (string, error) {
	resp, err := in.client().Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body), err
}

// raw dials an address and sends say.
func (in *inside) raw(address, say string) (net.Conn, *bufio.Reader) {
	in.t.Helper()
	c, err := in.dial(in.t.Context(), "tcp", address)
	if err != nil {
		in.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, say); err != nil {
		in.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// last waits until no connection is open, and returns the line that began last.
func (in *inside) last() hutch.Connection {
	in.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		all := in.g.Connections(in.t.Context(), hutch.ConnectionQuery{Limit: 1000}).Connections
		if in.g.Traffic().Open == 0 && len(all) > 0 {
			return slices.MaxFunc(all, func(a, b hutch.Connection) int { return int(a.ID - b.ID) })
		}
		time.Sleep(time.Millisecond)
	}
	in.t.Fatalf("connections do not end: %+v", in.g.Traffic())
	return hutch.Connection{}
}

// pair is both ends of a real connection.
func pair(network string) (near, far net.Conn, err error) {
	if network == "udp" {
		a, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, nil, err
		}
		b, err := net.DialUDP("udp", nil, a.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return nil, nil, err
		}
		return b, &peer{a, b.LocalAddr()}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	far, err = l.Accept()
	return near, far, err
}

// peer is an unconnected socket with one other end.
type peer struct {
	*net.UDPConn
	other net.Addr
}

func (p *peer) Write(b []byte) (int, error) { return p.WriteTo(b, p.other) }

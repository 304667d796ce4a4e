package listen

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Gate accepts a limited number of connections and shares them among callers.
//
// A connection is a stranger until one of its requests has identified the caller (see Claim). A stranger that is idle for
// StrangerIdle is closed. When connections run out, strangers are closed earlier, beginning with the one that has been idle
// longest. If no stranger is idle, the one whose request has been served longest is closed: servers identify a caller at
// once, so this client sends slowly. So clients with a token can always connect, however many connections strangers open. A
// claimed connection belongs to a class, such as the connections of one owner, and no class holds more than its share.
//
// A connection is idle when no request of it is being served: also during its TLS handshake and before the head of its
// first request has arrived.
type Gate struct {
	net.Listener
	opt    GateOptions
	freed  chan struct{} // signalled when another connection can be accepted
	closed chan struct{}
	close  func()

	mu      sync.Mutex
	total   int
	classes map[string]*class
	idle    list.List // idle strangers, the one that has been idle longest first
	busy    list.List // the other strangers, the one that has been busy longest first
}

// strangerBusy is how long the request of a stranger can take. After that, if a new connection needs space, the stranger
// is closed before an idle connection of a known caller is.
const strangerBusy = time.Second

// GateOptions configure a gate. Most is required.
type GateOptions struct {
	Most int
	// Share is the highest number of connections of one class, and of the strangers of one address;
	// default a quarter of Most, at least 16.
	Share int
	// StrangerIdle is how long a stranger can be idle; default 15 s.
	StrangerIdle time.Duration
	// Shared reports whether many clients use an address, such as a proxy's. Such an address is not limited to a share.
	// nil means none.
	Shared func(netip.Addr) bool
}

// class is the connections that share one bound.
type class struct {
	count int
	idle  list.List // the one that has been idle longest first
}

// NewGate puts a gate in front of a listener.
func NewGate(l net.Listener, opt GateOptions) *Gate {
	if opt.Share == 0 {
		opt.Share = max(opt.Most/4, 16)
	}
	opt.Share = min(opt.Share, opt.Most)
	if opt.StrangerIdle == 0 {
		opt.StrangerIdle = 15 * time.Second
	}
	if opt.Shared == nil {
		opt.Shared = func(netip.Addr) bool { return false }
	}
	g := &Gate{Listener: l, opt: opt, freed: make(chan struct{}, 1), closed: make(chan struct{}), classes: map[string]*class{}}
	g.close = sync.OnceFunc(func() { close(g.closed) })
	return g
}

// Accept implements net.Listener. It waits while every connection serves a request.
func (g *Gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &gateConn{Conn: conn, gate: g}
	if addr := addrOf(conn); !g.opt.Shared(addr) {
		c.class = strangerPrefix + Network(addr).String()
	}
	for !g.admit(c) {
		select {
		case <-g.freed:
		case <-g.closed:
			conn.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// Close implements net.Listener. Connections outlive it.
func (g *Gate) Close() error {
	g.close()
	return g.Listener.Close()
}

// strangerPrefix is the prefix of the class names of strangers. The address follows it.
const strangerPrefix = "stranger "

// admit counts a new stranger, if the limit allows it or another connection can be closed.
func (g *Gate) admit(c *gateConn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= g.opt.Most && !evict(&g.idle) && !g.evictSlowLocked() && !g.evictLargestLocked() && !evict(&g.busy) {
		return false
	}
	g.total++
	g.joinLocked(c, c.class)
	if of := g.classes[c.class]; c.class != "" && of.count > g.opt.Share {
		evict(&of.idle) // a connection of this address, if any; the new one is not in the idle list yet
	}
	g.setIdleLocked(c)
	return true
}

// evict closes the connection in a list that has been idle longest.
func evict(idle *list.List) bool {
	front := idle.Front()
	if front == nil {
		return false
	}
	front.Value.(*gateConn).dropLocked()
	return true
}

// evictSlowLocked closes the stranger that has been busy longest. It does so only if that time is long, or if there are
// so many busy strangers that most of them cannot be callers who are just being identified.
func (g *Gate) evictSlowLocked() bool {
	front := g.busy.Front()
	slow := front != nil && time.Since(front.Value.(*gateConn).since) >= strangerBusy
	return (slow || g.busy.Len() > g.opt.Most/4) && evict(&g.busy)
}

// evictLargestLocked closes an idle connection of the class that has the most
// of them.
func (g *Gate) evictLargestLocked() bool {
	var largest list.List
	most := &largest
	for _, c := range g.classes {
		if c.idle.Len() > most.Len() {
			most = &c.idle
		}
	}
	return evict(most)
}

// gateConn is an accepted connection. Its gate's lock guards the fields below.
type gateConn struct {
	net.Conn
	gate *Gate

	class   string // its class; empty for a stranger without a share
	claimed bool
	busy    int       // requests
	since   time.Time // when it became busy
	gone    bool
	timer   *time.Timer
	inClass *list.Element // while it is idle
	inAll   *list.Element // while it is an idle stranger
	inBusy  *list.Element // while it is a busy stranger
}

// Close implements net.Conn.
func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	c.leaveLocked()
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the data for the client. net/http calls it before it closes a connection, because data can still be in
// transit.
func (c *gateConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// dropLocked closes the connection to free its slot. When the server then uses the connection, it gets an error.
func (c *gateConn) dropLocked() {
	c.leaveLocked()
	c.Conn.Close()
}

func (c *gateConn) leaveLocked() {
	if c.gone {
		return
	}
	c.gone = true
	c.gate.setBusyLocked(c)
	c.gate.unlistLocked(c)
	c.gate.partLocked(c)
	c.gate.total--
	c.gate.signal()
}

// expire closes a stranger that has been idle for too long.
func (c *gateConn) expire() {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.inAll != nil {
		c.dropLocked()
	}
}

// joinLocked adds a connection to a class, partLocked removes it.
func (g *Gate) joinLocked(c *gateConn, name string) {
	c.class = name
	if g.classes[name] == nil {
		g.classes[name] = &class{}
	}
	g.classes[name].count++
}

func (g *Gate) partLocked(c *gateConn) {
	of := g.classes[c.class]
	if of.count--; of.count == 0 {
		delete(g.classes, c.class)
	}
}

// setIdleLocked records that a connection is idle, setBusyLocked that it is not.
func (g *Gate) setIdleLocked(c *gateConn) {
	c.inClass = g.classes[c.class].idle.PushBack(c)
	if c.claimed {
		g.signal()
		return
	}
	c.inAll = g.idle.PushBack(c)
	if c.timer == nil {
		c.timer = time.AfterFunc(g.opt.StrangerIdle, c.expire)
	} else {
		c.timer.Reset(g.opt.StrangerIdle)
	}
	g.signal()
}

func (g *Gate) setBusyLocked(c *gateConn) {
	if c.inClass != nil {
		g.classes[c.class].idle.Remove(c.inClass)
	}
	if c.inAll != nil {
		g.idle.Remove(c.inAll)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.inClass, c.inAll = nil, nil
}

// signal wakes the accept that waits for a free slot.
func (g *Gate) signal() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

type gateConnKey struct{}

// Context is for http.Server.ConnContext. Handler and Claim find the connection in
// the returned context.
func (g *Gate) Context(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, gateConnKey{}, conn)
}

// Handler tracks which connections have requests.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(gateConnKey{}).(*gateConn); ok {
			g.begin(c)
			defer g.end(c)
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gate) begin(c *gateConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.busy++; c.gone {
		return
	}
	g.setBusyLocked(c)
	if !c.claimed && c.inBusy == nil {
		c.since, c.inBusy = time.Now(), g.busy.PushBack(c)
	}
}

// unlistLocked removes a connection from the busy strangers.
func (g *Gate) unlistLocked(c *gateConn) {
	if c.inBusy != nil {
		g.busy.Remove(c.inBusy)
	}
	c.inBusy = nil
}

func (g *Gate) end(c *gateConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.busy--; c.busy == 0 && !c.gone {
		g.unlistLocked(c)
		g.setIdleLocked(c)
	}
}

// Claim assigns the connection of a request to the named class. It returns false if the class uses its whole share
// already; then the caller refuses the request. Without a gate there are no limits.
func Claim(ctx context.Context, name string) bool {
	c, ok := ctx.Value(gateConnKey{}).(*gateConn)
	return !ok || c.gate.claim(c, "of "+name)
}

// ClaimConn assigns an accepted connection to the named class, for servers that do not use HTTP. The connection then
// counts as busy until it is closed. ClaimConn returns false if the class uses its whole share already; then the caller
// closes the connection.
func (g *Gate) ClaimConn(conn net.Conn, name string) bool {
	c, ok := conn.(*gateConn)
	if !ok {
		return true
	}
	g.begin(c)
	return g.claim(c, "of "+name)
}

func (g *Gate) claim(c *gateConn, name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.gone || c.claimed && c.class == name {
		return true
	}
	if of := g.classes[name]; of != nil && of.count >= g.opt.Share && !evict(&of.idle) {
		return false
	}
	g.unlistLocked(c)
	g.partLocked(c) // it is busy, so it is in no other list
	g.joinLocked(c, name)
	c.claimed = true
	return true
}

// addrOf returns the address of the client.
func addrOf(conn net.Conn) netip.Addr {
	tcp, _ := conn.RemoteAddr().(*net.TCPAddr)
	return tcp.AddrPort().Addr().Unmap()
}

// Network returns the address by which a client is counted: for IPv6 that of its network, because one client has all
// addresses of a network.
func Network(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	network, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return addr
	}
	return network.Addr()
}

// Package egress decides what a sandbox can reach, and carries allowed connections.
//
// A [Gateway] gets every connection that a sandbox begins, to any address, before the connection is accepted. It
// compares three things with the rules: the address, for rules about networks; the name to which our own resolver
// answered with this address, for rules about names; and, because one address serves many names, the name that the
// client asks for on the connection, in the TLS ClientHello or in every HTTP request. Everything that is not allowed is
// refused at once.
//
// # Names
//
// The gateway's own resolver is the only one that a sandbox has. It answers names that a rule covers, with addresses
// that can be reached, and records them: an address counts as that of a name only for the sandbox that got this
// answer. It answers A and AAAA records only. Queries of other types have no answer, so that they carry no data out or
// in, and so that no client receives a key for an encrypted ClientHello.
//
// # Protocols
//
// At the ports of the web, a connection to a name is TLS or HTTP/1, or is ended. At other ports, which a rule must
// name, it can be another protocol; but if the client speaks first and its bytes could be TLS or HTTP, it must be that
// protocol.
//
// A sandbox can have a proxy: then every allowed TCP connection goes through it, and UDP is refused.
//
// TLS to a host that has a brokered secret or a header rule ends in the broker, which adds the values to each request.
package egress

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"hutch"
	"hutch/internal/netstack"
)

// Options configure a gateway.
type Options struct {
	// Sandbox is the id, for messages.
	Sandbox string
	// Names are the addresses that the resolver listens at.
	Names []netip.Addr
	// Resolver looks names up outside; nil uses the host's resolver.
	Resolver *Resolver
	// Dial connects outside; nil uses the host's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// HostAddrs returns this machine's addresses, which are never reached; nil reads them.
	HostAddrs func() ([]net.Addr, error)
	// Observe is called with events, to count them; nil for none.
	Observe Observer
	// Brokering serves brokered hosts; the zero value serves none.
	Brokering Brokering
	// Link connects to a port of another sandbox of the same owner, by its id; nil means no links.
	Link func(ctx context.Context, sandbox string, port uint16) (net.Conn, error)
	// Complete is called with each line of the log when the line is complete; nil for none. It must not block.
	Complete func(hutch.Connection)
	// Before is the earlier traffic, to which new traffic is added.
	Before hutch.Traffic
}

// Observer counts for all sandboxes.
type Observer interface {
	// Decided is called for every connection, request and lookup.
	Decided(protocol string, v hutch.Verdict)
	// Carried is called with numbers of bytes.
	Carried(sent, received int)
}

// Gateway is the network exit of one sandbox: it implements netstack.Handler. Its methods are safe for concurrent
// use.
type Gateway struct {
	opt    Options
	host   host
	number int64 // number of this gateway among those of its resolver
	pins   pins
	record record
	counts counts

	flows   slots         // connections to the resolver
	lookups slots         // queries to servers outside
	asking  *rate.Limiter // rate of lookups

	mu        sync.Mutex
	rules     *rules
	fresh     *rate.Limiter // new connections
	pace      *rate.Limiter // bytes; nil for no bound
	exhausted bool          // the limit of total bytes is reached
	live      map[*connection]struct{}
	requests  int // requests that are in the broker
	closed    bool
}

// counts are the figures of hutch.Traffic.
type counts struct{ allowed, denied, lookups, requests, sent, received atomic.Int64 }

func (c *counts) begin(t hutch.Traffic) {
	c.allowed.Store(t.Allowed)
	c.denied.Store(t.Denied)
	c.lookups.Store(t.Lookups)
	c.requests.Store(t.Requests)
	c.sent.Store(t.Sent)
	c.received.Store(t.Received)
}

const (
	defaultConnections = 256
	defaultRate        = 100
	dialTime           = 15 * time.Second
	lookupRate         = 100 // a second
)

// New returns a gateway with the rules n.
func New(n hutch.Network, opt Options) (*Gateway, error) {
	opt.Resolver = cmp.Or(opt.Resolver, NewResolver(nil))
	if opt.Dial == nil {
		opt.Dial = (&net.Dialer{Timeout: dialTime}).DialContext
	}
	if opt.HostAddrs == nil {
		opt.HostAddrs = net.InterfaceAddrs
	}
	if opt.Observe == nil {
		opt.Observe = noObserver{}
	}
	g := &Gateway{
		opt: opt, host: host{addrs: opt.HostAddrs}, live: map[*connection]struct{}{},
		flows: newSlots(ownFlows, mostFlows, opt.Resolver.flows), lookups: newSlots(ownLookups, mostLookups, opt.Resolver.lookups), asking: rate.NewLimiter(lookupRate, 3*lookupRate),
	}
	g.number = opt.Resolver.gateways.Add(1)
	g.record.complete = opt.Complete
	g.counts.begin(opt.Before)
	return g, g.Set(n)
}

var _ netstack.Handler = (*Gateway)(nil)

type noObserver struct{}

func (noObserver) Decided(string, hutch.Verdict) {}
func (noObserver) Carried(int, int)              {}

// Set replaces the rules, and cuts connections that the new rules do not allow.
func (g *Gateway) Set(n hutch.Network) error {
	r, err := newRules(n)
	if err != nil {
		return err
	}
	r.brokered = g.opt.Brokering.rule
	if g.opt.Brokering.Broker == nil {
		r.headers = nil
	}
	l := r.network.Limits
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.rules
	g.rules, g.exhausted = r, l.Total > 0 && g.counts.sent.Load()+g.counts.received.Load() > l.Total
	every := cmp.Or(l.Rate, defaultRate)
	g.fresh = rate.NewLimiter(rate.Limit(every), 2*every)
	g.pace = nil
	if l.Bandwidth > 0 {
		g.pace = rate.NewLimiter(rate.Limit(l.Bandwidth), int(max(l.Bandwidth/4, chunk)))
	}
	for p := range g.live {
		if v := g.againLocked(p); !v.allowed() {
			p.cut(v.reason)
		} else if old != nil && g.headersLocked(old, p) != g.headersLocked(r, p) {
			p.cut("a header rule for it was set or removed: connect again")
		} else if old != nil && v.link == "" && !reflect.DeepEqual(old.proxy, r.proxy) {
			p.cut("the proxy of the sandbox was changed: connect again")
		}
	}
	return nil
}

// headersLocked reports whether rules have a header rule for a connection. Such a connection ends in the broker, and
// other connections pass through. A connection that is open cannot change from one to the other.
func (g *Gateway) headersLocked(r *rules, p *connection) bool {
	names := []string{p.name}
	if p.name == "" {
		names = g.pins.of(p.dst.Addr())
	}
	return slices.ContainsFunc(names, func(name string) bool { return r.headers.For(name, p.dst.Port()) != nil })
}

// Traffic returns the traffic so far.
func (g *Gateway) Traffic() hutch.Traffic {
	g.mu.Lock()
	open := len(g.live)
	g.mu.Unlock()
	c := &g.counts
	return hutch.Traffic{
		Open: open, Allowed: c.allowed.Load(), Denied: c.denied.Load(), Lookups: c.lookups.Load(),
		Requests: c.requests.Load(), Sent: c.sent.Load(), Received: c.received.Load(),
	}
}

// Connections reads the log; q has been checked.
func (g *Gateway) Connections(ctx context.Context, q hutch.ConnectionQuery) hutch.ConnectionLog {
	return g.record.read(ctx, q)
}

// Close cuts all connections and accepts no new ones.
func (g *Gateway) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for p := range g.live {
		p.cut("the network of the sandbox ended")
	}
}

// verdict is the decision of the rules about a connection.
type verdict struct {
	rule   string   // the rule that allows the connection
	names  []string // the client must request one of these names; none for a network
	anyway bool     // allowed by address, whatever name the client asks for
	link   string   // the linked sandbox
	reason string   // why the connection is denied
}

func (v verdict) allowed() bool { return v.reason == "" }

func denied(format string, args ...any) verdict { return verdict{reason: fmt.Sprintf(format, args...)} }

// decideLocked decides whether dst can be reached.
func (g *Gateway) decideLocked(protocol string, dst netip.AddrPort) verdict {
	r, addr := g.rules, dst.Addr()
	if r.network.Mode == hutch.NetworkNone {
		return denied("%s", g.noneAtAll())
	}
	if l, ok := r.links[addr]; ok && protocol == "tcp" {
		return verdict{rule: "link " + l.Name, link: l.Sandbox}
	}
	if protocol == "udp" && r.proxy != nil {
		return denied("only TCP goes through the proxy of the sandbox (network.proxy): use TCP, or hutch network %s --unset-proxy", g.opt.Sandbox)
	}
	if rule := r.addr(&g.host, addr, dst.Port()); rule != "" {
		return verdict{rule: rule, names: g.brokeredLocked(protocol, dst), anyway: true}
	}
	how, _ := g.host.reachOf(addr)
	if how == never {
		return denied("%s is never reachable: it is the host's own, link-local, metadata or reserved", addr)
	}
	if block, ok := r.blocked(addr, dst.Port()); ok {
		return denied("%s is blocked: hutch network %s --unblock %s", addr, g.opt.Sandbox, block)
	}
	asked := g.pins.of(addr)
	var v verdict
	for _, name := range asked {
		if rule := r.name(name, dst.Port()); rule != "" {
			v.rule, v.names = rule, append(v.names, name)
		}
	}
	switch {
	case protocol == "udp" && len(v.names) > 0:
		return denied("a rule with a name allows only TCP, where the server sees the name: for UDP, %s", g.fixFor(ruleFor(dst)))
	case len(v.names) > 0:
		return v
	case len(asked) > 0:
		return g.noRule(asked[len(asked)-1], dst)
	}
	return denied("no rule allows %s, and it is the answer to no name that was asked for: %s", addr, g.fixFor(ruleFor(dst)))
}

// fixFor returns the command that adds a missing rule to the sandbox.
func (g *Gateway) fixFor(rule string) string {
	return "hutch network " + g.opt.Sandbox + " --allow " + rule
}

func (g *Gateway) noneAtAll() string {
	return "the network of the sandbox is none: hutch network " + g.opt.Sandbox + " --mode allow-list"
}

// noRule denies a name without a rule. A program inside can have invented the name, so a name is not proposed as a
// rule if that rule would be for more than one host.
func (g *Gateway) noRule(name string, dst netip.AddrPort) verdict {
	if one, err := hutch.ParseNetworkRule(name); err != nil || one.Below || one.Port != 0 || one.Name != "" && one.AllPorts || one.Net.IsValid() && !one.Net.IsSingleIP() {
		return denied("no rule allows %s at port %d, and none can: it is not the name of a machine", shown(name), dst.Port())
	}
	rule := name
	if p := dst.Port(); p != 80 && p != 443 {
		rule += ":" + strconv.Itoa(int(p))
	}
	return denied("no rule allows %s at port %d: %s", shown(name), dst.Port(), g.fixFor(shown(rule)))
}

func ruleFor(dst netip.AddrPort) string {
	rule := hutch.NetworkRule{Net: netip.PrefixFrom(dst.Addr(), dst.Addr().BitLen()), Port: dst.Port()}
	return rule.String()
}

// againLocked decides again about an open connection.
func (g *Gateway) againLocked(p *connection) verdict {
	v := g.decideLocked(p.line.Protocol, p.dst)
	if !v.allowed() || v.anyway || len(v.names) == 0 || p.name == "" {
		return v
	}
	return g.namedLocked(p.name, p.dst)
}

// namedLocked decides whether a client can ask for a name on a connection to dst.
func (g *Gateway) namedLocked(name string, dst netip.AddrPort) verdict {
	rule := g.rules.name(name, dst.Port())
	if rule == "" {
		return g.noRule(name, dst)
	}
	for _, n := range g.pins.of(dst.Addr()) {
		if n == name {
			return verdict{rule: rule, names: []string{n}}
		}
	}
	return denied("%s was asked of %s, which is not its address", name, dst.Addr())
}

// TCP implements netstack.Handler.
func (g *Gateway) TCP(ctx context.Context, f netstack.Flow) {
	if g.isResolver(f.Dst()) {
		g.answerStream(ctx, f)
		return
	}
	g.pass(ctx, f, "tcp", func(p *connection, v verdict, down, up net.Conn) error {
		if len(v.names) > 0 && v.anyway {
			return g.carryAnyway(p, down, up)
		}
		if len(v.names) > 0 {
			return g.carryNamed(p, down, up)
		}
		relay(down, up)
		return nil
	})
}

// UDP implements netstack.Handler.
func (g *Gateway) UDP(ctx context.Context, f netstack.Flow) {
	if g.isResolver(f.Dst()) {
		g.answerDatagrams(ctx, f)
		return
	}
	g.pass(ctx, f, "udp", func(_ *connection, _ verdict, down, up net.Conn) error {
		exchange(down, up)
		return nil
	})
}

// pass connects a flow to its destination. If the destination is not allowed, or does not accept the connection, pass
// refuses the flow. The connection ends when carry returns, and carry fails when the connection ends.
func (g *Gateway) pass(ctx context.Context, f netstack.Flow, protocol string, carry func(p *connection, v verdict, down, up net.Conn) error) {
	p, v := g.begin(ctx, protocol, f.Dst())
	if p == nil {
		f.Refuse()
		return
	}
	defer p.end()
	up, err := g.reach(p.ctx, protocol, f.Dst(), v)
	if err != nil {
		f.Refuse()
		p.fail(err)
		return
	}
	defer up.Close()
	down, err := f.Accept()
	if err != nil {
		p.fail(err)
		return
	}
	defer down.Close()
	defer context.AfterFunc(p.ctx, func() { down.Close(); up.Close() })()
	if err := carry(p, v, &metered{Conn: down, p: p}, up); err != nil && err != io.EOF {
		p.fail(err)
	}
}

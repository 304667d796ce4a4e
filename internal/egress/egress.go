// Package egress decides what a sandbox reaches, and carries what it may.
//
// A [Gateway] is handed every connection that a sandbox begins, to whatever
// address, before anybody has answered it. Three things are held against the
// rules: the address, for rules that are nets; the name that the address was
// our own answer to, for rules that are names; and then, because one address
// serves many names, the name that is asked for on the connection: in the hello
// of TLS, or in every request of HTTP. What is not allowed is refused at once.
//
// # Names
//
// The gateway's own resolver is the only one that a sandbox has. It answers
// names that a rule is about, with addresses that may be reached, and notes
// them: an address is that of a name only for who was told so. Of the kinds of
// records it answers A and AAAA. Others have no answer, so that nothing is
// carried out or in by them and no key for an encrypted hello comes in.
//
// # Protocols
//
// At the ports of the web, a connection to a name is TLS or HTTP/1, or ends. At
// other ports, that a rule names, it may be something else; but where the
// client speaks first and says what could be TLS or HTTP, it is held to that.
package egress

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"hutch"
	"hutch/internal/netstack"
)

// Options are what a gateway is made from.
type Options struct {
	// Sandbox is the id, for messages.
	Sandbox string
	// Names are the addresses that the resolver listens at.
	Names []netip.Addr
	// Resolver asks the world; nil is the host's.
	Resolver *Resolver
	// Dial reaches the world; nil is the host's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// HostAddrs are this machine's, which are never reached; nil reads them.
	HostAddrs func() ([]net.Addr, error)
	// Observe is told of what happened, for counts; nil for nobody.
	Observe Observer
	// Brokering is who speaks to hosts in the sandbox's place; the zero one is
	// nobody.
	Brokering Brokering
	// Link connects with a port of another sandbox of the same owner, by its
	// id; nil knows of none.
	Link func(ctx context.Context, sandbox string, port uint16) (net.Conn, error)
	// Before is what went through before, and is counted on.
	Before hutch.Traffic
}

// Observer counts for all sandboxes.
type Observer interface {
	// Decided is told of every connection, request and lookup.
	Decided(protocol string, v hutch.Verdict)
	// Carried is told of bytes.
	Carried(sent, received int)
}

// Gateway is the way out of one sandbox: it implements netstack.Handler. Its methods are safe for concurrent
// use.
type Gateway struct {
	opt    Options
	host   host
	pins   pins
	record record
	counts counts

	flows   slots         // to the resolver
	lookups slots         // questions to the world
	asking  *rate.Limiter // lookups

	mu     sync.Mutex
	rules  *rules
	fresh  *rate.Limiter // new connections
	pace   *rate.Limiter // bytes; nil for no bound
	spent  bool          // the limit of bytes in all is reached
	live   map[*passage]struct{}
	closed bool
}

// counts are those of hutch.Traffic.
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

// New returns a gateway that holds to n.
func New(n hutch.Network, opt Options) (*Gateway, error) {
	opt.Resolver = cmp.Or(opt.Resolver, NewResolver(nil))
	if opt.Dial == nil {
		opt.Dial = (&net.Dialer{Timeout: dialTime}).DialContext
	}
	if opt.HostAddrs == nil {
		opt.HostAddrs = net.InterfaceAddrs
	}
	if opt.Observe == nil {
		opt.Observe = nobody{}
	}
	g := &Gateway{
		opt: opt, host: host{addrs: opt.HostAddrs}, live: map[*passage]struct{}{},
		flows: newSlots(ownFlows, mostFlows, opt.Resolver.flows), lookups: newSlots(ownLookups, mostLookups, opt.Resolver.lookups), asking: rate.NewLimiter(lookupRate, 3*lookupRate),
	}
	g.counts.begin(opt.Before)
	return g, g.Set(n)
}

var _ netstack.Handler = (*Gateway)(nil)

type nobody struct{}

func (nobody) Decided(string, hutch.Verdict) {}
func (nobody) Carried(int, int)              {}

// Set holds to n from now on, and cuts what it does not allow.
func (g *Gateway) Set(n hutch.Network) error {
	r, err := newRules(n)
	if err != nil {
		return err
	}
	r.brokered = g.opt.Brokering.rule
	l := r.network.Limits
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules, g.spent = r, l.Total > 0 && g.counts.sent.Load()+g.counts.received.Load() > l.Total
	every := cmp.Or(l.Rate, defaultRate)
	g.fresh = rate.NewLimiter(rate.Limit(every), 2*every)
	g.pace = nil
	if l.Bandwidth > 0 {
		g.pace = rate.NewLimiter(rate.Limit(l.Bandwidth), int(max(l.Bandwidth/4, chunk)))
	}
	for p := range g.live {
		if v := g.againLocked(p); !v.allowed() {
			p.cut(v.reason)
		}
	}
	return nil
}

// Traffic is what went through so far.
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

// Close cuts all connections; there are no new ones.
func (g *Gateway) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for p := range g.live {
		p.cut("the network of the sandbox ended")
	}
}

// verdict is what the rules say of a connection.
type verdict struct {
	rule   string   // that allows it
	names  []string // one of which has to be asked for on it; none for a net
	anyway bool     // as the address is allowed, whatever is asked for
	link   string   // the sandbox that it leads to
	reason string   // why it is denied
}

func (v verdict) allowed() bool { return v.reason == "" }

func denied(format string, args ...any) verdict { return verdict{reason: fmt.Sprintf(format, args...)} }

// decideLocked says whether dst may be reached.
func (g *Gateway) decideLocked(protocol string, dst netip.AddrPort) verdict {
	r, addr := g.rules, dst.Addr()
	if r.network.Mode == hutch.NetworkNone {
		return denied("%s", g.noneAtAll())
	}
	if l, ok := r.links[addr]; ok && protocol == "tcp" {
		return verdict{rule: "link " + l.Name, link: l.Sandbox}
	}
	if rule := r.addr(&g.host, addr, dst.Port()); rule != "" {
		return verdict{rule: rule, names: g.brokeredLocked(protocol, dst), anyway: true}
	}
	how, _ := g.host.reachOf(addr)
	if how == never {
		return denied("%s is never reachable: it is the host's own, link-local, metadata or reserved", addr)
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
		return denied("a name allows TCP alone, of which the name can be told: for UDP, %s", g.mend(ruleFor(dst)))
	case len(v.names) > 0:
		return v
	case len(asked) > 0:
		return g.noRule(asked[len(asked)-1], dst)
	}
	return denied("no rule allows %s, and it is the answer to no name that was asked for: %s", addr, g.mend(ruleFor(dst)))
}

// mend is what to type for a rule that is missing.
func (g *Gateway) mend(rule string) string {
	return "hutch network " + g.opt.Sandbox + " --allow " + rule
}

func (g *Gateway) noneAtAll() string {
	return "the network of the sandbox is none: hutch network " + g.opt.Sandbox + " --mode allow-list"
}

func (g *Gateway) noRule(name string, dst netip.AddrPort) verdict {
	rule := name
	if p := dst.Port(); p != 80 && p != 443 {
		rule += ":" + strconv.Itoa(int(p))
	}
	return denied("no rule allows %s at port %d: %s", shown(name), dst.Port(), g.mend(shown(rule)))
}

func ruleFor(dst netip.AddrPort) string {
	rule := hutch.NetworkRule{Net: netip.PrefixFrom(dst.Addr(), dst.Addr().BitLen()), Port: dst.Port()}
	return rule.String()
}

// againLocked decides anew about what is under way.
func (g *Gateway) againLocked(p *passage) verdict {
	v := g.decideLocked(p.line.Protocol, p.dst)
	if !v.allowed() || len(v.names) == 0 || p.name == "" {
		return v
	}
	return g.namedLocked(p.name, p.dst)
}

// namedLocked says whether a name may be asked for on a connection to dst.
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
	g.pass(ctx, f, "tcp", func(p *passage, v verdict, down, up net.Conn) error {
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
	g.pass(ctx, f, "udp", func(_ *passage, _ verdict, down, up net.Conn) error {
		exchange(down, up)
		return nil
	})
}

// pass connects a flow with what it is for, if that is allowed and there: whom
// the world refuses is refused. The passage ends when carry returns, and carry
// fails when the passage ends.
func (g *Gateway) pass(ctx context.Context, f netstack.Flow, protocol string, carry func(p *passage, v verdict, down, up net.Conn) error) {
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

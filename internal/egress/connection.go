package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"hutch"
)

// connection is an open, allowed connection.
type connection struct {
	g      *Gateway
	dst    netip.AddrPort
	ctx    context.Context
	cancel context.CancelCauseFunc
	line   *hutch.Connection
	name   string // the requested name; guarded by the gateway's mutex
	rule   string // the rule that allows it; does not change after the name is known

	sent, received atomic.Int64

	mu      sync.Mutex
	verdict hutch.Verdict
	reason  string // why it failed or was cut
}

// begin allows a connection, or records why it is denied.
func (g *Gateway) begin(ctx context.Context, protocol string, dst netip.AddrPort) (*connection, verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.decideLocked(protocol, dst)
	if v.allowed() {
		v.reason = g.fullLocked()
	}
	line := hutch.Connection{Time: time.Now(), Protocol: protocol, Address: dst.Addr().String(), Port: int(dst.Port()), Verdict: hutch.Allowed, Rule: v.rule, Open: true}
	line.Host = line.Address
	if names := cmp.Or(lastOf(v.names), lastOf(g.pins.of(dst.Addr()))); names != "" {
		line.Host = names
	}
	if !v.allowed() {
		line.Open, line.Rule = false, ""
		g.deny(line, v.reason)
		return nil, v
	}
	g.counts.allowed.Add(1)
	g.opt.Observe.Decided(protocol, hutch.Allowed)
	p := &connection{g: g, dst: dst, rule: v.rule, line: g.record.add(line), verdict: hutch.Allowed}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	g.live[p] = struct{}{}
	return p, v
}

// fullLocked returns why no connection can begin now, or "".
func (g *Gateway) fullLocked() string {
	l := g.rules.network.Limits
	switch most := cmp.Or(l.Connections, defaultConnections); {
	case g.closed:
		return ended
	case g.exhausted:
		return spent(l.Total)
	case len(g.live) >= most:
		return fmt.Sprintf("the limit of %d connections at once (network.limits.connections) is reached", most)
	case !g.fresh.Allow():
		return fmt.Sprintf("the limit of %d new connections a second (network.limits.rate) is reached", cmp.Or(l.Rate, defaultRate))
	}
	return ""
}

// deny records a denied connection.
func (g *Gateway) deny(line hutch.Connection, reason string) {
	line.Verdict, line.Reason = hutch.Refused, reason
	g.counts.denied.Add(1)
	g.opt.Observe.Decided(line.Protocol, hutch.Refused)
	g.record.add(line)
}

const ended = "the network of the sandbox ended"

func spent(total int64) string {
	return fmt.Sprintf("the limit of %d bytes (network.limits.totalBytes) is reached", total)
}

func lastOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}

// named decides whether a connection to the requested name is allowed, and records the name.
func (p *connection) named(protocol, name string) verdict {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	v := p.g.namedLocked(name, p.dst)
	p.g.record.note(p.line, func(c *hutch.Connection) {
		c.Protocol, c.Host = protocol, cmp.Or(shown(name), c.Host)
		if v.allowed() {
			c.Rule, p.rule = v.rule, v.rule
		}
	})
	p.name = name
	return v
}

// refuse ends a connection that turned out not to be allowed.
func (p *connection) refuse(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verdict == hutch.Allowed {
		p.verdict, p.reason = hutch.Refused, reason
		p.g.counts.allowed.Add(-1)
		p.g.counts.denied.Add(1)
		p.g.opt.Observe.Decided(p.line.Protocol, hutch.Refused)
	}
}

// cut ends a connection that was allowed until now.
func (p *connection) cut(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = cmp.Or(p.reason, "cut: "+reason)
	p.cancel(errors.New(reason))
}

// fail records why a connection could not be made.
func (p *connection) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = cmp.Or(p.reason, because(err))
}

// because describes an error without its addresses, which the log line has already.
func because(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return "nothing came in time"
	}
	return err.Error()
}

// end completes the log line of a connection.
func (p *connection) end() {
	p.cancel(nil)
	p.mu.Lock()
	p.g.record.end(p.line, func(c *hutch.Connection) {
		c.Sent, c.Received = p.sent.Load(), p.received.Load()
		c.Verdict, c.Reason = p.verdict, p.reason
		if c.Verdict == hutch.Refused {
			c.Rule = ""
		}
	})
	p.mu.Unlock()
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	delete(p.g.live, p)
}

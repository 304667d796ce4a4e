package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	socks "golang.org/x/net/proxy"

	"hutch"
)

// dial connects to an address outside, which the rules allow: TCP through the proxy of the sandbox, if it has one.
func (g *Gateway) dial(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, error) {
	g.mu.Lock()
	r := g.rules
	g.mu.Unlock()
	if r.proxy == nil || network != "tcp" {
		return g.opt.Dial(ctx, network, dst.String())
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return g.throughProxy(ctx, r, dst)
}

// throughProxy asks the proxy for a connection to dst, by its address: the name was looked up and checked here.
func (g *Gateway) throughProxy(ctx context.Context, r *rules, dst netip.AddrPort) (net.Conn, error) {
	c, err := g.dialProxy(ctx, r)
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the proxy %s cannot be reached: %s", r.proxy.Address, because(err))
	}
	var auth *socks.Auth
	if p := r.proxy; p.Username != "" {
		auth = &socks.Auth{User: p.Username, Password: string(p.Password)}
	}
	d, err := socks.SOCKS5("tcp", r.proxy.Address, auth, connected{c})
	if err == nil {
		// The result wraps c and hides its CloseWrite.
		_, err = d.(socks.ContextDialer).DialContext(ctx, "tcp", dst.String())
	}
	if err != nil {
		c.Close()
		if op, ok := errors.AsType[*net.OpError](err); ok { // drop the outer error, because the log line has its addresses already
			err = op.Err
		}
		return nil, hutch.Errorf(hutch.Unavailable, "the proxy %s made no connection: %s", r.proxy.Address, strings.TrimPrefix(because(err), "unknown error "))
	}
	return c, nil
}

// connected is a dialer that returns an existing connection.
type connected struct{ net.Conn }

func (c connected) Dial(string, string) (net.Conn, error) { return c.Conn, nil }

func (c connected) DialContext(context.Context, string, string) (net.Conn, error) {
	return c.Conn, nil
}

// dialProxy connects to the proxy: to the proxy's address or, if the proxy has a name, to an address of that name that
// the sandbox could reach.
func (g *Gateway) dialProxy(ctx context.Context, r *rules) (net.Conn, error) {
	rule := r.proxy.Rule()
	addrs := []netip.Addr{rule.Net.Addr()}
	if rule.Name != "" {
		giveBack, ok := g.lookups.take(ctx)
		if !ok {
			return nil, ctx.Err()
		}
		found, err := g.opt.Resolver.lookup(ctx, g.number, rule.Name)
		if giveBack(); err != nil {
			return nil, err
		}
		addrs = found
	}
	way := *r
	way.list = append(slices.Clip(r.list), rule)
	err := error(hutch.Errorf(hutch.Denied, "its address %s is not public, or is blocked: give the address itself in network.proxy.address if that is meant", addrs[0]))
	for _, a := range addrs {
		if !way.reaches(&g.host, a, rule.Port) {
			continue
		}
		var c net.Conn
		if c, err = g.opt.Dial(ctx, "tcp", netip.AddrPortFrom(a, rule.Port).String()); err == nil {
			return c, nil
		}
	}
	return nil, err
}

package host

import (
	"context"
	"net"
	"net/netip"

	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/linux/tun"
)

// Gateways returns the function that makes the gateway of one sandbox for an engine. The gateways share the resolver's
// cache; dns is the server that the resolver asks, or "" for those of this machine. complete, if it is not nil, sets
// further options.
func Gateways(dns string, observe egress.Observer, complete func(engine.Exit, *egress.Options)) func(engine.Exit) (engine.Gateway, error) {
	var ask func(ctx context.Context, network, address string) (net.Conn, error)
	if dns != "" {
		ask = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, dns)
		}
	}
	resolver, names := egress.NewResolver(ask), []netip.Addr{tun.Gateway4, tun.Gateway6}
	return func(x engine.Exit) (engine.Gateway, error) {
		opt := egress.Options{Sandbox: x.Sandbox, Names: names, Resolver: resolver, Observe: observe, Before: x.Traffic}
		if complete != nil {
			complete(x, &opt)
		}
		return egress.New(x.Network, opt)
	}
}

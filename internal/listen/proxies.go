package listen

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of trusted proxies, which name the client of each request. The zero value trusts none.
type Proxies []netip.Prefix

// ParseProxies reads addresses and networks, such as 127.0.0.1 and 10.0.0.0/8.
func ParseProxies(list []string) (Proxies, error) {
	var all Proxies
	for _, text := range list {
		network, err := netip.ParsePrefix(text)
		if addr, failed := netip.ParseAddr(text); failed == nil {
			addr = addr.Unmap()
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not an address or a network: give one such as 127.0.0.1 or 10.0.0.0/8", text)
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

// Has reports whether an address is that of a proxy.
func (p Proxies) Has(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(addr.Unmap()) })
}

// Client returns the address that a request comes from: that of the connection or, if that is a proxy's, the last
// address in X-Forwarded-For that is not a proxy's. The client itself can have written the addresses before that one.
func (p Proxies) Client(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	addr := from.Addr().Unmap()
	said := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(said) {
		next, err := netip.ParseAddr(strings.TrimSpace(text))
		if !p.Has(addr) || err != nil {
			break
		}
		addr = next.Unmap()
	}
	return addr
}

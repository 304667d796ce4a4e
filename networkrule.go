package hutch

import (
	"net/netip"
	"strconv"
	"strings"
)

// NetworkRule allows a sandbox to reach a name, with or without its subdomains, or an IP network; at one port, at all
// ports, or at the ports of the web.
type NetworkRule struct {
	// Name is in lower case, without a final dot; empty for a rule about a network.
	Name  string
	Below bool // only the subdomains of Name, not Name itself
	Net   netip.Prefix
	Port  uint16 // 0 unless the rule names one port
	// AllPorts allows every port. If neither AllPorts nor Port is set, a name is allowed at the ports of the web, 80
	// and 443, and a network at all ports.
	AllPorts bool

	unread string // a text that is not a rule
}

// ParseNetworkRule reads a rule:
//
//	example.com            a name, at ports 80 and 443
//	*.example.com          all names below example.com, at any depth, but not itself
//	example.com:5432       at one port
//	example.com:*          at all ports
//	203.0.113.7            an address, at all ports
//	10.1.0.0/16:5432       a net, at one port
//	2001:db8::/32          an IPv6 net, at all ports
//	[2001:db8::1]:443      an IPv6 address, at one port
//
// Names are written in ASCII; upper case is read as lower.
func ParseNetworkRule(text string) (NetworkRule, error) {
	host, port, err := cutPort(text)
	if err != nil {
		return NetworkRule{}, err
	}
	r := NetworkRule{AllPorts: port == "*"}
	if port != "" && !r.AllPorts {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return NetworkRule{}, badRule(text, "%.20q is not a port: give 1 to 65535, or *", port)
		}
		r.Port = uint16(n)
	}
	if looksNumeric(host) {
		r.Net, err = parseNet(text, host)
		r.AllPorts = r.Port == 0
		return r, err
	}
	r.Name, r.Below = strings.CutPrefix(strings.ToLower(strings.TrimSuffix(host, ".")), "*.")
	if r.Name == "" {
		return NetworkRule{}, badRule(text, "it names nothing")
	}
	return r, checkRuleName(text, r.Name)
}

func badRule(text, format string, args ...any) *Error {
	why := Errorf(Invalid, format, args...)
	return Errorf(Invalid, "the network rule %.120q cannot be read: %s; rules look like example.com, *.example.com:443, 10.1.0.0/16:5432 or [2001:db8::]/32", text, why.Message).Naming(AboutField, "network.allow")
}

// cutPort splits a rule into host and port. An IPv6 address contains colons, so it needs brackets before a port.
func cutPort(text string) (host, port string, err error) {
	if strings.Contains(text, "://") {
		return "", "", badRule(text, "it is a URL: give only the name")
	}
	if rest, ok := strings.CutPrefix(text, "["); ok {
		addr, after, closed := strings.Cut(rest, "]")
		if !closed {
			return "", "", badRule(text, "there is no ] to its [")
		}
		bits, port, given := strings.Cut(after, ":")
		if bits != "" && bits[0] != '/' || given && port == "" || !strings.Contains(addr, ":") {
			return "", "", badRule(text, "in [ and ] stands an address of IPv6, and after it may come a /length and a :port")
		}
		return addr + bits, port, nil
	}
	if strings.Count(text, ":") > 1 {
		return text, "", nil
	}
	host, port, given := strings.Cut(text, ":")
	if given && port == "" {
		return "", "", badRule(text, "there is no port after the colon")
	}
	return host, port, nil
}

// looksNumeric reports whether a host is meant to be an address: it has a colon or a slash, or its last label begins
// with a digit and is a number.
func looksNumeric(host string) bool {
	last := host[strings.LastIndexByte(strings.TrimSuffix(host, "."), '.')+1:]
	_, err := strconv.ParseUint(strings.TrimSuffix(last, "."), 0, 64)
	return err == nil || strings.ContainsAny(host, ":/")
}

func parseNet(text, host string) (netip.Prefix, error) {
	if strings.Contains(host, "%") {
		return netip.Prefix{}, badRule(text, "an address with a zone is one of this machine's own links")
	}
	if !strings.Contains(host, "/") {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return netip.Prefix{}, badRule(text, "it is neither a name nor an address: write four numbers of 0 to 255, as in 203.0.113.7")
		}
		return checkNet(text, netip.PrefixFrom(addr, addr.BitLen()))
	}
	p, err := netip.ParsePrefix(host)
	if err != nil {
		if _, path, _ := strings.Cut(host, "/"); !isNumber(path) {
			return netip.Prefix{}, badRule(text, "a rule has no path: give only the name")
		}
		return netip.Prefix{}, badRule(text, "it is not a net: write an address, a slash, and how many of its bits count")
	}
	return checkNet(text, p)
}

func isNumber(s string) bool { _, err := strconv.Atoi(s); return err == nil }

func checkNet(text string, p netip.Prefix) (netip.Prefix, error) {
	switch a := p.Addr(); {
	case p != p.Masked():
		return netip.Prefix{}, badRule(text, "it has bits set beyond its length: write %s", p.Masked())
	case a.Is4In6():
		return netip.Prefix{}, badRule(text, "write %s as an address of IPv4", a)
	case a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsMulticast(), a.IsUnspecified() && p.IsSingleIP():
		return netip.Prefix{}, badRule(text, "%s is never reachable, whatever the rules", p)
	}
	return p, nil
}

// checkRuleName refuses a text that cannot be a host name.
func checkRuleName(text, name string) error {
	if len(name) > 253 {
		return badRule(text, "a name has at most 253 characters")
	}
	for label := range strings.SplitSeq(name, ".") {
		if strings.Contains(label, "*") {
			return badRule(text, "a * stands for whole names, only at the beginning: *.example.com; to reach everything there is the mode open")
		}
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return badRule(text, "the parts of a name, between dots, have 1 to 63 characters and no - at their ends")
		}
		if i := strings.IndexFunc(label, func(c rune) bool { return !isNameRune(c) }); i >= 0 {
			return badRule(text, "%q cannot be in a name: it has letters, digits and -, others are written as xn--", []rune(label[i:])[0])
		}
	}
	return nil
}

func isNameRune(c rune) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// String returns the canonical form of a rule, which parses to the same rule.
func (r NetworkRule) String() string {
	if r.isZero() {
		return r.unread
	}
	host, port := r.Name, ""
	if r.Below {
		host = "*." + host
	}
	if r.Net.IsValid() {
		host = r.Net.String()
		if r.Net.IsSingleIP() {
			host = r.Net.Addr().String()
		}
	}
	switch {
	case r.Port != 0:
		port = ":" + strconv.Itoa(int(r.Port))
	case r.AllPorts && !r.Net.IsValid():
		port = ":*"
	}
	if port != "" && r.Net.IsValid() && r.Net.Addr().Is6() {
		addr, bits, _ := strings.Cut(host, "/")
		host = "[" + addr + "]"
		if bits != "" {
			host += "/" + bits
		}
	}
	return host + port
}

// isZero reports whether r is not a rule: it is empty, or its text could not be parsed.
func (r NetworkRule) isZero() bool { return r.Name == "" && !r.Net.IsValid() }

// Check refuses a text that is not a rule.
func (r NetworkRule) Check() error {
	if !r.isZero() {
		return nil
	}
	_, err := ParseNetworkRule(r.unread)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (r NetworkRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It keeps a text that is not a rule, for Check to refuse.
func (r *NetworkRule) UnmarshalText(text []byte) error {
	*r = readNetworkRule(string(text))
	return nil
}

func readNetworkRule(text string) NetworkRule {
	r, err := ParseNetworkRule(text)
	if err != nil {
		return NetworkRule{unread: text}
	}
	return r
}

// HasName reports whether a rule covers a name. The name is in lower case, without a final dot.
func (r NetworkRule) HasName(name string) bool {
	if r.Below {
		above, ok := strings.CutSuffix(name, r.Name)
		return ok && len(above) > 1 && above[len(above)-1] == '.'
	}
	return r.Name != "" && name == r.Name
}

// HasAddr reports whether a rule covers an address.
func (r NetworkRule) HasAddr(a netip.Addr) bool { return r.Net.IsValid() && r.Net.Contains(a) }

// HasPort reports whether a rule allows a port.
func (r NetworkRule) HasPort(port uint16) bool {
	return r.AllPorts || r.Port == port || r.Port == 0 && (port == 80 || port == 443)
}

// Covers reports whether r allows everything that the other rule allows.
func (r NetworkRule) Covers(other NetworkRule) bool {
	if !r.coversPorts(other) {
		return false
	}
	switch {
	case other.Net.IsValid():
		return r.HasAddr(other.Net.Addr()) && r.Net.Bits() <= other.Net.Bits()
	case other.Below:
		return r.Below && (r.Name == other.Name || r.HasName(other.Name))
	}
	return r.HasName(other.Name)
}

func (r NetworkRule) coversPorts(other NetworkRule) bool {
	if r.AllPorts || r.Port == other.Port && !other.AllPorts {
		return true
	}
	return r.Port == 0 && (other.Port == 80 || other.Port == 443)
}

package hutch

import (
	"strings"
	"unicode"
)

// NetworkProxy is a SOCKS5 server through which a sandbox's TCP connections leave, after the rules have allowed them.
// Programs inside do not see it and cannot go around it: with a proxy, UDP is refused. If the proxy cannot be reached,
// connections fail.
type NetworkProxy struct {
	// Address is a name or an IP address, with a port: "proxy.example.com:1080".
	Address string `json:"address"`
	// Username is empty for a proxy that needs no credentials.
	Username string `json:"username,omitempty"`
	// Password is empty in every answer. In a request, an empty password stands for the password that the sandbox
	// already has for the same address and user name.
	Password HiddenValue `json:"password,omitempty"`
}

// MaxProxyCredential is the longest user name and password of a proxy, in bytes (RFC 1929).
const MaxProxyCredential = 255

// Rule returns the rule that would allow the proxy of a canonical network.
func (p NetworkProxy) Rule() NetworkRule { return readNetworkRule(p.Address) }

// canonical returns the proxy with its address in the canonical form of rules. Its error does not quote the password.
func (p NetworkProxy) canonical() (*NetworkProxy, error) {
	rule, err := ParseNetworkRule(p.Address)
	if err != nil || rule.Port == 0 || rule.Below || rule.Net.IsValid() && !rule.Net.IsSingleIP() {
		return nil, badField(inProxyAddress, "network.proxy.address is %.300q: give the name or address of a SOCKS5 server and its port, such as proxy.example.com:1080; the host's own and link-local addresses are never reached", p.Address)
	}
	p.Address = rule.String()
	if p.Username == "" && p.Password != "" {
		return nil, badField(inProxyUsername, "the proxy has a password and no user name: give both, or neither")
	}
	if err := checkCredential(inProxyUsername, "user name", p.Username); err != nil {
		return nil, err
	}
	if err := checkCredential(inProxyPassword, "password", string(p.Password)); err != nil {
		return nil, err
	}
	return &p, nil
}

// checkCredential refuses a user name or a password that SOCKS5 cannot send. Its error does not quote the text.
func checkCredential(field, what, text string) error {
	switch {
	case len(text) > MaxProxyCredential:
		return badField(field, "the %s of the proxy has %d bytes, and SOCKS5 can send %d: give a shorter one", what, len(text), MaxProxyCredential)
	case strings.ContainsFunc(text, unicode.IsControl):
		return badField(field, "the %s of the proxy has a line break or another control character: give it without", what)
	}
	return nil
}

// shown returns the proxy without its password.
func (p *NetworkProxy) shown() *NetworkProxy {
	if p == nil {
		return nil
	}
	return &NetworkProxy{Address: p.Address, Username: p.Username}
}

// completed returns the proxy with the password that a sandbox already has for the same server and user. Both proxies
// are canonical.
func (p *NetworkProxy) completed(have *NetworkProxy) *NetworkProxy {
	if p == nil || have == nil || p.Password != "" || *p != *have.shown() {
		return p
	}
	return have
}

// Errors about the proxy name one of these fields, so that a form can show the error at its input.
const (
	inProxy         = "network.proxy"
	inProxyAddress  = "network.proxy.address"
	inProxyUsername = "network.proxy.username"
	inProxyPassword = "network.proxy.password"
)

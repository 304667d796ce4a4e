package e2b

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/compat/e2b/seam"
)

// network is E2B's description of a sandbox's network.
type network struct {
	AllowOut []string     `json:"allowOut,omitempty"`
	DenyOut  []string     `json:"denyOut,omitempty"`
	Public   *bool        `json:"allowPublicTraffic,omitempty"`
	Proxy    *egressProxy `json:"egressProxy,omitempty"`
	Rules    rules        `json:"rules,omitempty"`
	Host     string       `json:"maskRequestHost,omitempty"`
	HTTPS    []int        `json:"httpsPorts,omitempty"`
}

// egressProxy is the proxy of a network. Its fields are those of Hutch's proxy.
type egressProxy struct {
	Address  string `json:"address"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// networkUpdate is the body of an update.
type networkUpdate struct {
	AllowOut []string     `json:"allowOut"`
	DenyOut  []string     `json:"denyOut"`
	Proxy    *egressProxy `json:"egressProxy"`
	Rules    rules        `json:"rules"`
	Internet *bool        `json:"allow_internet_access"`
}

// portInHost stands for the port of the request in maskRequestHost.
const portInHost = "${PORT}"

// checkHost refuses a text that cannot be a Host header: a name or an address, and a port.
func (n network) checkHost() error {
	host := strings.ReplaceAll(n.Host, portInHost, "1")
	u, err := url.Parse("http://" + host)
	if n.Host != "" && (err != nil || u.Host != host || u.Hostname() == "" || len(n.Host) > maxHost) {
		return hutch.Errorf(hutch.Invalid, "network.maskRequestHost is %.100q: give a host, and a port if you like, as in example.com:%s", n.Host, portInHost).Naming(hutch.AboutField, "network.maskRequestHost")
	}
	return nil
}

// checkHTTPS refuses ports that no server in a sandbox can have.
func (n network) checkHTTPS() error {
	for _, port := range n.HTTPS {
		if hutch.CheckPort(port) != nil || port == seam.EnvdPort {
			return hutch.Errorf(hutch.Invalid, "network.httpsPorts has %d: give ports from 1 to 65535, and not %d, which is the sandbox's own API", port, seam.EnvdPort).Naming(hutch.AboutField, "network.httpsPorts")
		}
	}
	if len(n.HTTPS) > maxHTTPS {
		return hutch.Errorf(hutch.Invalid, "network.httpsPorts has %d ports: give %d at most", len(n.HTTPS), maxHTTPS).Naming(hutch.AboutField, "network.httpsPorts")
	}
	return nil
}

const maxHTTPS = 50

// protocolOf returns what the server at a port of a sandbox speaks.
func protocolOf(sb hutch.Sandbox, port int) hutch.PortProtocol {
	if slices.Contains(httpsPorts(sb), port) {
		return hutch.HTTPSPort
	}
	return hutch.HTTPPort
}

// httpsPorts returns the ports of a sandbox whose servers speak HTTPS.
func httpsPorts(sb hutch.Sandbox) (ports []int) {
	for text := range strings.FieldsSeq(sb.Labels[labelHTTPS]) {
		if port, err := strconv.Atoi(text); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}

const maxHost = 253 + len(":") + len(portInHost) // bytes

// hostOf returns the Host header that a server of a sandbox gets; empty to keep the visitor's.
func hostOf(sb hutch.Sandbox, port int) string {
	return strings.ReplaceAll(sb.Labels[labelHost], portInHost, strconv.Itoa(port))
}

// everything is E2B's notation for all addresses.
var everything = []string{"0.0.0.0/0", "::/0"}

// translate returns Hutch's form of the network: what a sandbox can reach, and the headers that its requests get.
func (n network) translate(internet *bool) (hutch.Network, error) {
	headers, err := n.Rules.translate()
	if err != nil {
		return hutch.Network{}, err
	}
	reach, err := n.reach(internet)
	reach.Headers = headers
	if p := n.Proxy; p != nil {
		reach.Proxy = &hutch.NetworkProxy{Address: p.Address, Username: p.Username, Password: hutch.HiddenValue(p.Password)}
	}
	return reach, err
}

// reach translates everything except the rules.
func (n network) reach(internet *bool) (hutch.Network, error) {
	closed := internet != nil && !*internet
	allow := hutch.Rules(n.AllowOut...)
	var block hutch.NetworkRules
	for _, denied := range n.DenyOut {
		rule, err := hutch.ParseNetworkRule(denied)
		switch {
		case slices.Contains(everything, denied):
			closed = true
		case err != nil || !rule.Net.IsValid():
			return hutch.Network{}, hutch.Errorf(hutch.Invalid, "network.denyOut has %.100q: give addresses and nets, such as 203.0.113.7 or 203.0.113.0/24", denied).Naming(hutch.AboutField, "network.denyOut")
		case !slices.ContainsFunc(allow, func(a hutch.NetworkRule) bool { return a.Covers(rule) }): // as with E2B, allowed addresses are not denied
			block = append(block, rule)
		}
	}
	if !closed {
		return openBut(block, allow), nil
	}
	if slices.ContainsFunc(n.AllowOut, func(rule string) bool { return slices.Contains(everything, rule) }) {
		return hutch.Network{Mode: hutch.NetworkOpen}, nil
	}
	return hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules(n.AllowOut...)}, nil
}

// openBut returns the server's default network without the addresses in block. If allow has a part of these addresses,
// the network must be open, with that part allowed.
func openBut(block, allow hutch.NetworkRules) hutch.Network {
	n := hutch.Network{Block: block}
	for _, a := range allow {
		if slices.ContainsFunc(block, func(b hutch.NetworkRule) bool { return b.Covers(a) }) {
			n.Mode, n.Allow = hutch.NetworkOpen, append(n.Allow, a)
		}
	}
	return n
}

// networkOf returns a sandbox's network in E2B's form.
func networkOf(sb hutch.Sandbox) network {
	public := sb.Labels[labelClosed] == ""
	n := network{Public: &public, Host: sb.Labels[labelHost], HTTPS: httpsPorts(sb), Rules: rulesOf(sb.Network.Headers)}
	if p := sb.Network.Proxy; p != nil {
		n.Proxy = &egressProxy{Address: p.Address, Username: p.Username}
	}
	for _, rule := range sb.Network.Allow {
		n.AllowOut = append(n.AllowOut, rule.String())
	}
	for _, rule := range sb.Network.Block {
		n.DenyOut = append(n.DenyOut, rule.String())
	}
	if sb.Network.Mode != hutch.NetworkOpen {
		n.DenyOut = append(n.DenyOut, everything[0])
	}
	return n
}

// network replaces all rules of a sandbox.
func (s *Server) network(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req networkUpdate
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	n, err := network{AllowOut: req.AllowOut, DenyOut: req.DenyOut, Proxy: req.Proxy, Rules: req.Rules}.translate(req.Internet)
	if err != nil {
		return 0, nil, err
	}
	if err := s.referTo(r.Context(), n.Headers); err != nil {
		return 0, nil, err
	}
	if n.Mode == "" {
		n.Mode = hutch.NetworkOpen
	}
	_, err = s.svc.SetNetwork(r.Context(), sb.ID, n)
	return http.StatusNoContent, nil, err
}

package e2b

import (
	"net/http"
	"slices"

	"hutch"
)

// network is what E2B says of a sandbox's network. Our rules only allow, so what E2B denies can be translated only if
// it is everything.
type network struct {
	AllowOut []string        `json:"allowOut,omitempty"`
	DenyOut  []string        `json:"denyOut,omitempty"`
	Public   *bool           `json:"allowPublicTraffic,omitempty"`
	Proxy    *map[string]any `json:"egressProxy,omitempty"`
	Rules    map[string]any  `json:"rules,omitempty"`
	Host     string          `json:"maskRequestHost,omitempty"`
	HTTPS    []int           `json:"httpsPorts,omitempty"`
}

// networkUpdate is the body of an update.
type networkUpdate struct {
	AllowOut []string        `json:"allowOut"`
	DenyOut  []string        `json:"denyOut"`
	Proxy    *map[string]any `json:"egressProxy"`
	Rules    map[string]any  `json:"rules"`
	Internet *bool           `json:"allow_internet_access"`
}

// everything is how a rule of E2B names all addresses.
var everything = []string{"0.0.0.0/0", "::/0"}

func (n network) translate(internet *bool) (hutch.Network, error) {
	switch {
	case n.Proxy != nil:
		return hutch.Network{}, unsupported("network.egressProxy")
	case len(n.Rules) > 0:
		return hutch.Network{}, unsupported("network.rules")
	case n.Host != "":
		return hutch.Network{}, unsupported("network.maskRequestHost")
	case len(n.HTTPS) > 0:
		return hutch.Network{}, unsupported("network.httpsPorts")
	}
	closed := internet != nil && !*internet
	for _, denied := range n.DenyOut {
		if !slices.Contains(everything, denied) {
			return hutch.Network{}, hutch.Errorf(hutch.Unsupported, "this server cannot deny %.100q and allow the rest, as network.denyOut asks: deny 0.0.0.0/0 and name in network.allowOut what to reach", denied).Naming(hutch.AboutField, "network.denyOut")
		}
		closed = true
	}
	if !closed {
		return hutch.Network{}, nil // the server's default
	}
	if slices.ContainsFunc(n.AllowOut, func(rule string) bool { return slices.Contains(everything, rule) }) {
		return hutch.Network{Mode: hutch.NetworkOpen}, nil
	}
	return hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules(n.AllowOut...)}, nil
}

// networkOf is a sandbox's network in E2B's words.
func networkOf(sb hutch.Sandbox) network {
	public := sb.Labels[labelClosed] == ""
	n := network{Public: &public}
	for _, rule := range sb.Network.Allow {
		n.AllowOut = append(n.AllowOut, rule.String())
	}
	if sb.Network.Mode != hutch.NetworkOpen {
		n.DenyOut = everything[:1]
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
	if n.IsZero() {
		n = hutch.Network{Mode: hutch.NetworkOpen}
	}
	_, err = s.svc.SetNetwork(r.Context(), sb.ID, n)
	return http.StatusNoContent, nil, err
}

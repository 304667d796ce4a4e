package hutch

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Networks are the verbs on a sandbox's network rules. They wake no sandbox.
type Networks interface {
	// Network returns what a sandbox can reach, and what it has reached.
	Network(ctx context.Context, sandbox string) (NetworkState, error)

	// SetNetwork replaces all rules of a sandbox. When it returns, the new rules are in force, and connections that
	// they do not allow are cut.
	SetNetwork(ctx context.Context, sandbox string, n Network) (NetworkState, error)

	// Connections reads the log of what a sandbox reached, or tried to.
	Connections(ctx context.Context, sandbox string, q ConnectionQuery) (ConnectionLog, error)
}

// NetworkMode is the rule for addresses that no other rule names.
type NetworkMode string

const (
	// NetworkNone allows nothing.
	NetworkNone NetworkMode = "none"
	// NetworkAllowList allows only destinations that a rule names; without rules, none.
	NetworkAllowList NetworkMode = "allow-list"
	// NetworkOpen allows every public address, and destinations that a rule names.
	NetworkOpen NetworkMode = "open"
)

// Network is what a sandbox can reach. The zero Network, in a request, means the server's default.
type Network struct {
	Mode  NetworkMode  `json:"mode,omitempty"` // default allow-list
	Allow NetworkRules `json:"allow,omitempty"`
	// Block lists addresses and nets that the sandbox cannot reach, in any mode. A rule of Allow overrides it only for
	// the same or a narrower net.
	Block NetworkRules `json:"block,omitempty"`
	// Links are other sandboxes of the same owner. The sandbox reaches their ports by a name.
	Links NetworkLinks `json:"links,omitempty"`
	// Headers set headers of requests to some hosts. They do not give access to these hosts.
	Headers HeaderRules `json:"headers,omitempty"`
	// Proxy is the way out for TCP connections; nil for the host's own.
	Proxy  *NetworkProxy `json:"proxy,omitempty"`
	Limits NetworkLimits `json:"limits,omitzero"`
}

// NetworkLimits bound a sandbox's use of the network. Zero means the default.
type NetworkLimits struct {
	Connections int   `json:"connections,omitempty"`    // connections at once; default 256
	Rate        int   `json:"rate,omitempty"`           // new connections in a second; default 100
	Bandwidth   int64 `json:"bytesPerSecond,omitempty"` // both directions together; default unbounded
	Total       int64 `json:"totalBytes,omitempty"`     // bytes in all; default unlimited
}

// MaxNetworkRules is the highest number of rules of a sandbox.
const MaxNetworkRules = 1000

// IsZero reports whether n sets nothing.
func (n Network) IsZero() bool {
	return n.Mode == "" && len(n.Allow)+len(n.Block)+len(n.Links)+len(n.Headers) == 0 && n.Proxy == nil && n.Limits == NetworkLimits{}
}

// Canonical returns n with its defaults and with each rule in its canonical form. Its error says which part of n is
// not valid.
func (n Network) Canonical() (Network, error) {
	switch n.Mode {
	case "":
		n.Mode = NetworkAllowList
	case NetworkNone, NetworkAllowList, NetworkOpen:
	default:
		return n, Errorf(Invalid, "network.mode is %.40q: use none, allow-list or open", n.Mode).Naming(AboutField, "network.mode")
	}
	if l := n.Limits; min(int64(l.Connections), int64(l.Rate), l.Bandwidth, l.Total) < 0 {
		return n, Errorf(Invalid, "a limit of the network is negative: give a number, or leave it out for the default").Naming(AboutField, "network.limits")
	}
	var err error
	if n.Allow, err = n.Allow.canonical("network.allow"); err != nil {
		return n, err
	}
	if n.Block, err = n.Block.canonical("network.block"); err != nil {
		return n, err
	}
	if i := slices.IndexFunc(n.Block, func(rule NetworkRule) bool { return rule.Name != "" }); i >= 0 {
		return n, Errorf(Invalid, "network.block has the name %s: give addresses and nets, such as 203.0.113.7 or 203.0.113.0/24", n.Block[i]).Naming(AboutField, "network.block")
	}
	if n.Links, err = n.Links.canonical(); err != nil {
		return n, err
	}
	if n.Headers, err = n.Headers.canonical(); err == nil && n.Proxy != nil {
		n.Proxy, err = n.Proxy.canonical()
	}
	return n, err
}

// HiddenValue is the value of a header or the password of a proxy. It is empty in every answer. In a request, an empty
// value stands for the value that the sandbox already has, so that a network that was read can be changed and sent
// back.
type HiddenValue string

// String hides the value, so that no log or error shows it.
func (v HiddenValue) String() string {
	if v == "" {
		return ""
	}
	return "[redacted]"
}

// Shown returns n without its hidden values: those of header rules, and the password of its proxy.
func (n Network) Shown() Network {
	n.Headers, n.Proxy = n.Headers.names(), n.Proxy.shown()
	return n
}

// Completed returns n with empty hidden values replaced by the values that the sandbox already has. Both networks are
// canonical.
func (n Network) Completed(have Network) (Network, error) {
	var err error
	n.Proxy = n.Proxy.completed(have.Proxy)
	n.Headers, err = n.Headers.completed(have.Headers)
	return n, err
}

// refuseHidden refuses header rules and a proxy in a network that does not belong to a sandbox.
func (n Network) refuseHidden(of string) error {
	switch {
	case len(n.Headers) > 0:
		return badField(inRules, "%s cannot have header rules, because it would keep their values: give them to each sandbox, in network.headers of its create or of PUT /v1/sandboxes/ID/network", of)
	case n.Proxy != nil:
		return badField(inProxy, "%s cannot have a proxy, because it would keep its password: give it to each sandbox, in network.proxy of its create or of PUT /v1/sandboxes/ID/network", of)
	}
	return nil
}

// NetworkState is what a sandbox can reach, and what it has reached.
type NetworkState struct {
	SandboxID string  `json:"sandboxId"`
	Network   Network `json:"network"`
	Traffic   Traffic `json:"traffic"`
	// Unavailable says why the sandbox reaches nothing, whatever the rules allow; empty when the network works.
	Unavailable string `json:"unavailable,omitempty"`
}

// Traffic counts the network traffic of a sandbox since its creation. If the server is killed, the last minute can be
// missing.
type Traffic struct {
	Open     int   `json:"open"`     // connections now
	Allowed  int64 `json:"allowed"`  // connections
	Denied   int64 `json:"denied"`   // connections, requests and lookups
	Lookups  int64 `json:"lookups"`  // number of name lookups
	Requests int64 `json:"requests"` // HTTP requests that the server sees
	Sent     int64 `json:"sent"`     // bytes, by the sandbox
	Received int64 `json:"received"`
}

// Verdict is the outcome of an attempt to connect.
type Verdict string

const (
	Allowed Verdict = "allowed"
	Refused Verdict = "denied"
)

// Connection is one line of the log: an attempt to connect, a DNS query, or an HTTP request on a connection.
type Connection struct {
	// Cursor is the position of the line in the log. When a connection ends, its line moves to the end of the log,
	// with the final figures.
	Cursor int64     `json:"cursor"`
	ID     int64     `json:"id"`
	Time   time.Time `json:"time"`
	// Protocol is tcp, udp, dns, tls or http: the most specific that is known.
	Protocol string `json:"protocol"`
	// Host is the requested name, or else the address.
	Host     string  `json:"host"`
	Address  string  `json:"address,omitempty"`
	Port     int     `json:"port,omitempty"`
	Verdict  Verdict `json:"verdict"`
	Rule     string  `json:"rule,omitempty"`   // the rule that allowed it
	Reason   string  `json:"reason,omitempty"` // why it was denied or failed, and the fix
	Method   string  `json:"method,omitempty"` // method of an HTTP request
	Status   int     `json:"status,omitempty"` // status of its answer
	Sent     int64   `json:"sent"`             // bytes, by the sandbox
	Received int64   `json:"received"`
	Open     bool    `json:"open,omitempty"` // it is still open
	Duration Seconds `json:"duration"`       // set when it has ended
	Count    int     `json:"count"`          // number of equal attempts in this line
}

// MissingRule returns the rule that would allow a denied connection.
func (c Connection) MissingRule() NetworkRule {
	if c.Port == 0 || c.Port == 80 || c.Port == 443 {
		return readNetworkRule(c.Host)
	}
	return readNetworkRule(net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
}

// Allowable reports whether a rule would allow a denied connection. No rule allows addresses that are never reachable,
// or requests that contradict their connection. The reason of such a connection names no command.
func (c Connection) Allowable() bool {
	return strings.Contains(c.Reason, "hutch network ") && !strings.Contains(c.Reason, " --unset-proxy") && !strings.Contains(c.Reason, " --link ")
}

// Allows reports whether the rules of n allow everything that the given rule allows.
func (n Network) Allows(rule NetworkRule) bool {
	return n.Mode == NetworkAllowList && slices.ContainsFunc(n.Allow, func(have NetworkRule) bool { return have.Covers(rule) })
}

// ConnectionQuery chooses lines of the log.
type ConnectionQuery struct {
	After   int64   `json:"after,omitempty"`   // a cursor: only newer lines
	Verdict Verdict `json:"verdict,omitempty"` // only lines with this verdict
	// Limit is the highest number of lines: the newest ones, or the first ones after After; default 100.
	Limit int `json:"limit,omitempty"`
	// Wait is how long to wait if there is no line yet; at most 60.
	Wait Seconds `json:"wait,omitempty"`
}

// ConnectionLog is a part of the log, oldest first.
type ConnectionLog struct {
	Connections []Connection `json:"connections"` // never null in JSON
	Next        int64        `json:"next"`        // the cursor to continue from
}

// MaxConnections is how many lines the log of a sandbox keeps; older ones are dropped.
const MaxConnections = 1000

// DefaultConnections is how many lines a query reads by default.
const DefaultConnections = 100

// Check refuses a query that no server can answer.
func (q ConnectionQuery) Check() error {
	switch {
	case q.After < 0 || q.Limit < 0 || q.Limit > MaxConnections:
		return Errorf(Invalid, "after and limit may not be negative, and limit is at most %d", MaxConnections).Naming(AboutField, "limit")
	case !(q.Wait >= 0 && q.Wait <= 60):
		return Errorf(Invalid, "wait is %v s: give 0 to 60", q.Wait).Naming(AboutField, "wait")
	case q.Verdict != "" && q.Verdict != Allowed && q.Verdict != Refused:
		return Errorf(Invalid, "verdict is %.40q: use allowed or denied", q.Verdict).Naming(AboutField, "verdict")
	}
	return nil
}

// Changed returns n with another mode, unless mode is empty, and with the given rules added and removed.
func (n Network) Changed(mode NetworkMode, allow, deny NetworkRules) (Network, error) {
	n.Mode = cmp.Or(mode, n.Mode)
	var err error
	n.Allow, err = n.Allow.Changed(allow, deny)
	return n, err
}

func badField(field, format string, args ...any) *Error {
	return Errorf(Invalid, format, args...).Naming(AboutField, field)
}

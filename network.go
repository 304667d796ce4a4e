package hutch

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"time"
)

// Networks are the verbs on what a sandbox may reach. They wake no sandbox.
type Networks interface {
	// Network tells what a sandbox may reach, and what it did reach.
	Network(ctx context.Context, sandbox string) (NetworkState, error)

	// SetNetwork says anew what a sandbox may reach, in place of all that was
	// said. It holds when the call returns: connections that are not allowed any
	// more are cut.
	SetNetwork(ctx context.Context, sandbox string, n Network) (NetworkState, error)

	// Connections reads the log of what a sandbox reached, or tried to.
	Connections(ctx context.Context, sandbox string, q ConnectionQuery) (ConnectionLog, error)
}

// NetworkMode is how the network of a sandbox decides.
type NetworkMode string

const (
	// NetworkNone reaches nothing.
	NetworkNone NetworkMode = "none"
	// NetworkAllowList reaches what a rule allows, which is nothing when there
	// is none.
	NetworkAllowList NetworkMode = "allow-list"
	// NetworkOpen reaches every public address, and what a rule allows.
	NetworkOpen NetworkMode = "open"
)

// Network is what a sandbox may reach. The zero Network, in a request, is the
// server's default.
type Network struct {
	Mode NetworkMode `json:"mode,omitempty"` // default allow-list
	// Allow are rules, as ParseNetworkRule reads them.
	Allow []string `json:"allow,omitempty"`
	// Links are other sandboxes of the same owner, as ParseNetworkLink reads
	// them, whose ports are reached by a name.
	Links  []string      `json:"links,omitempty"`
	Limits NetworkLimits `json:"limits,omitzero"`
}

// NetworkLimits bound what a sandbox takes of the network. Zero is the default.
type NetworkLimits struct {
	Connections int   `json:"connections,omitempty"`    // at once; default 256
	Rate        int   `json:"rate,omitempty"`           // new ones in a second; default 100
	Bandwidth   int64 `json:"bytesPerSecond,omitempty"` // both directions together; default unbounded
	Total       int64 `json:"totalBytes,omitempty"`     // in all; default unbounded
}

// MaxNetworkRules is how many rules a sandbox may have.
const MaxNetworkRules = 1000

// IsZero reports whether n says nothing.
func (n Network) IsZero() bool {
	return n.Mode == "" && len(n.Allow) == 0 && len(n.Links) == 0 && n.Limits == NetworkLimits{}
}

// Canonical is n with its defaults and with rules in their one form, or why it
// cannot be.
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
	if len(n.Allow) > MaxNetworkRules {
		return n, Errorf(Invalid, "%d rules are more than the %d that a sandbox may have: name a domain by *.example.com, or a net by its prefix", len(n.Allow), MaxNetworkRules).Naming(AboutField, "network.allow")
	}
	var allow []string
	seen := map[string]bool{}
	for _, text := range n.Allow {
		rule, err := ParseNetworkRule(text)
		if err != nil {
			return n, err
		}
		if canonical := rule.String(); !seen[canonical] {
			seen[canonical] = true
			allow = append(allow, canonical)
		}
	}
	n.Allow = allow
	var err error
	n.Links, err = canonicalLinks(n.Links)
	return n, err
}

// NetworkState is what a sandbox may reach, and what it did.
type NetworkState struct {
	SandboxID string  `json:"sandboxId"`
	Network   Network `json:"network"`
	Traffic   Traffic `json:"traffic"`
	// Unavailable is why it reaches nothing whatever the rules say; empty when
	// it may.
	Unavailable string `json:"unavailable,omitempty"`
}

// Traffic counts what went over the network of a sandbox since that was made. Of
// the last minute before a server is killed, something may be missing.
type Traffic struct {
	Open     int   `json:"open"`     // connections now
	Allowed  int64 `json:"allowed"`  // connections
	Denied   int64 `json:"denied"`   // connections, requests and lookups
	Lookups  int64 `json:"lookups"`  // of names
	Requests int64 `json:"requests"` // of HTTP, where the server sees them
	Sent     int64 `json:"sent"`     // bytes, by the sandbox
	Received int64 `json:"received"`
}

// Verdict is what became of an attempt to reach something.
type Verdict string

const (
	Allowed Verdict = "allowed"
	Refused Verdict = "denied"
)

// Connection is one line of the log: an attempt to connect, to ask for a name,
// or a request on a connection.
type Connection struct {
	// Cursor is the place of the line in the log. A connection that ends moves
	// to the end of the log, as what it is then.
	Cursor int64     `json:"cursor"`
	ID     int64     `json:"id"`
	Time   time.Time `json:"time"`
	// Protocol is tcp, udp, dns, tls or http: the most that is known of it.
	Protocol string `json:"protocol"`
	// Host is the name that was asked for, or else the address.
	Host     string  `json:"host"`
	Address  string  `json:"address,omitempty"`
	Port     int     `json:"port,omitempty"`
	Verdict  Verdict `json:"verdict"`
	Rule     string  `json:"rule,omitempty"`   // that allowed it
	Reason   string  `json:"reason,omitempty"` // why it was denied or failed, and the mend
	Method   string  `json:"method,omitempty"` // of a request
	Status   int     `json:"status,omitempty"` // of its answer
	Sent     int64   `json:"sent"`             // bytes, by the sandbox
	Received int64   `json:"received"`
	Open     bool    `json:"open,omitempty"` // it goes on
	Duration Seconds `json:"duration"`       // when it has ended
	Count    int     `json:"count"`          // attempts alike that this line stands for
}

// MissingRule is the rule that would allow a connection that was denied.
func (c Connection) MissingRule() string {
	if c.Port == 0 || c.Port == 80 || c.Port == 443 {
		return c.Host
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
}

// Allows reports whether the rules of n allow all that a rule would.
func (n Network) Allows(rule string) bool {
	r, err := ParseNetworkRule(rule)
	return err == nil && n.Mode == NetworkAllowList && indexRules(n.Allow).cover(r)
}

// ConnectionQuery chooses lines of the log.
type ConnectionQuery struct {
	After   int64   `json:"after,omitempty"`   // a cursor: what is newer
	Verdict Verdict `json:"verdict,omitempty"` // only these
	// Limit is how many lines at most: the newest, or the first after After;
	// default 100.
	Limit int `json:"limit,omitempty"`
	// Wait is for how long to wait for a line when there is none; at most 60.
	Wait Seconds `json:"wait,omitempty"`
}

// ConnectionLog is a part of the log, oldest first.
type ConnectionLog struct {
	Connections []Connection `json:"connections"` // never null in JSON
	Next        int64        `json:"next"`        // the cursor to go on after
}

// MaxConnections is how many lines the log of a sandbox keeps: the newest.
const MaxConnections = 1000

// DefaultConnections is how many lines a query reads that does not say.
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

// Within refuses a canonical n that allows what the ceiling does not. What has
// no limit of its own has that of the ceiling.
func (n Network) Within(ceiling Network) error {
	beyond := func(format string, args ...any) error {
		return Errorf(Denied, "%s, which is beyond what this token may allow: ask someone with the scope admin", Errorf(Denied, format, args...).Message).Naming(AboutField, "network")
	}
	if n.Mode == NetworkOpen && ceiling.Mode != NetworkOpen {
		return beyond("the network is to be open")
	}
	if text, ok := n.firstBeyond(ceiling); ok {
		return beyond("the network is to reach %s", text)
	}
	over := func(l, most int64) bool { return most > 0 && l > most }
	if l, most := n.Limits, ceiling.Limits; over(int64(l.Connections), int64(most.Connections)) || over(int64(l.Rate), int64(most.Rate)) || over(l.Bandwidth, most.Bandwidth) || over(l.Total, most.Total) {
		return beyond("a limit of the network is over the most, which is %+v", most)
	}
	return nil
}

// firstBeyond is the first rule that a ceiling does not allow. An open ceiling
// allows every rule on names; rules on networks can be about private ones, so
// they need a rule of the ceiling's in any case.
func (n Network) firstBeyond(ceiling Network) (text string, ok bool) {
	rules := indexRules(ceiling.Allow)
	for _, text := range n.Allow {
		rule, err := ParseNetworkRule(text)
		if err != nil || !rules.cover(rule) && (ceiling.Mode != NetworkOpen || rule.Net.IsValid()) {
			return text, true
		}
	}
	return "", false
}

// Or is n with the server's default for what it does not say.
func (n Network) Or(fallback Network) Network {
	if n.Mode == "" && len(n.Allow) == 0 {
		n.Mode, n.Allow = fallback.Mode, fallback.Allow
	}
	l, other := &n.Limits, fallback.Limits
	l.Connections, l.Rate = cmp.Or(l.Connections, other.Connections), cmp.Or(l.Rate, other.Rate)
	l.Bandwidth, l.Total = cmp.Or(l.Bandwidth, other.Bandwidth), cmp.Or(l.Total, other.Total)
	return n
}

// Below is what is reached by who asks for n, on a server with a default, below a
// ceiling. Who asks for nothing has the default or, where that goes beyond the
// ceiling, the ceiling itself; who asks for more is refused.
func (n Network) Below(ceiling *Network, fallback Network) (Network, error) {
	if ceiling == nil {
		return n.Or(fallback).Canonical()
	}
	fallback, err := fallback.Canonical()
	if err != nil {
		return n, err
	}
	if fallback.Within(*ceiling) != nil {
		fallback = *ceiling
	}
	if n, err = n.Or(fallback).Or(Network{Limits: ceiling.Limits}).Canonical(); err != nil {
		return n, err
	}
	return n, n.Within(*ceiling)
}

// Changed is n in another mode, if one is given, with rules more and less.
func (n Network) Changed(mode NetworkMode, allow, deny []string) (Network, error) {
	n.Mode = cmp.Or(mode, n.Mode)
	n.Allow = append(slices.Clone(n.Allow), allow...)
	for _, text := range deny {
		rule, err := ParseNetworkRule(text)
		if err != nil {
			return n, err
		}
		before := len(n.Allow)
		n.Allow = slices.DeleteFunc(n.Allow, func(have string) bool { return have == rule.String() })
		if len(n.Allow) == before {
			return n, Errorf(NotFound, "there is no rule %s to take back: show the network to see those that there are", rule)
		}
	}
	return n, nil
}

package egress

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/broker"
	"hutch/internal/secret"
)

// Brokering says for which hosts a sandbox has brokered secrets, and which broker serves these hosts and those of the
// sandbox's header rules.
type Brokering struct {
	Broker *broker.Broker // nil serves none
	// Credentials returns the sandbox's present credentials. It must not call the gateway.
	Credentials func() []secret.Credential
	// Secret returns the value of a secret that a header rule refers to. It must not call the gateway.
	Secret func(name string) (string, error)
	// Answers returns a redactor that masks credentials in the answers of a host that got them.
	Answers func([]secret.Credential) *secret.Redactor
	// Used is called with every request; nil for none.
	Used func(host string, u broker.Use)
}

// of returns the credentials for a host and port; port 0 matches any.
func (b Brokering) of(host string, port uint16) []secret.Credential {
	if b.Broker == nil {
		return nil
	}
	return slices.DeleteFunc(b.Credentials(), func(c secret.Credential) bool { return !c.Brokers(host, port) })
}

// rule returns the log's name for what allows a host and port, or "".
func (b Brokering) rule(host string, port uint16) string {
	var names []string
	for _, c := range b.of(host, port) {
		names = append(names, c.Name)
	}
	return ruleOf(names)
}

func ruleOf(secrets []string) string {
	if len(secrets) == 0 {
		return ""
	}
	return "secret " + strings.Join(secrets, ", ")
}

// ruleWith returns what the log shows as the rule of a request that has received credentials: the names of the secrets
// or, without any, the rule of the connection; then the header rules.
func (p *connection) ruleWith(used []string) string {
	i := slices.IndexFunc(used, secret.IsHeader)
	if i < 0 {
		return ruleOf(used)
	}
	return strings.Join(append([]string{cmp.Or(ruleOf(used[:i]), p.rule)}, used[i:]...), ", ")
}

// brokeredLocked returns the names of an address for which TLS connections can end in the broker.
func (g *Gateway) brokeredLocked(protocol string, dst netip.AddrPort) (names []string) {
	if protocol != "tcp" {
		return nil
	}
	for _, name := range g.pins.of(dst.Addr()) {
		if g.rules.opened(name, dst.Port()) {
			names = append(names, name)
		}
	}
	return names
}

// carryAnyway carries a connection to an address that a rule allows, and that is also an address of a brokered host:
// if the client asks for that host, the connection is brokered.
func (g *Gateway) carryAnyway(p *connection, down, up net.Conn) error {
	client, server := newBuffered(down), newBuffered(up)
	first, err := firstWord(client, server)
	if err != nil {
		return err
	}
	var again net.Conn = client
	if begins, _ := client.r.Peek(client.r.Buffered()); first == client && begins[0] == recordHandshake {
		client.SetReadDeadline(time.Now().Add(helloTime))
		var name string
		name, again, err = hello(client)
		if err == nil && p.opens(name) {
			g.broker(p, name, again, server)
			return nil
		}
		client.SetReadDeadline(time.Time{})
	}
	relay(again, server)
	return nil
}

// opens reports whether a connection to an address that a rule allows goes to the broker, because the client requests
// name, a brokered name of that address. It records the name.
func (p *connection) opens(name string) bool {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if !p.g.rules.opened(name, p.dst.Port()) || !slices.Contains(p.g.pins.of(p.dst.Addr()), name) {
		return false
	}
	p.g.record.note(p.line, func(c *hutch.Connection) {
		c.Protocol, c.Host = "tls", shown(name)
		c.Rule = cmp.Or(p.g.rules.name(name, p.dst.Port()), c.Rule)
		p.rule = c.Rule
	})
	p.name = name
	return true
}

// opens reports whether the TLS connection to a name must be brokered.
func (g *Gateway) opens(name string, port uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rules.opened(name, port)
}

// credentials returns the credentials for requests to a host now: first brokered secrets, then the headers of a rule,
// which replace those of secrets.
func (g *Gateway) credentials(host string, port uint16) ([]secret.Credential, error) {
	b := g.opt.Brokering
	list := b.of(host, port)
	g.mu.Lock()
	rule := g.rules.headers.For(host, port)
	g.mu.Unlock()
	if rule == nil {
		return list, nil
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(rule.Headers)) {
		value, parts, err := rule.Headers[name].WithSecrets(b.Secret)
		if err != nil {
			return nil, err
		}
		if size += len(value); size > hutch.MaxHeaderValues {
			return nil, hutch.Errorf(hutch.Invalid, "the header rule for %s would send more than %d bytes, as it refers to long secrets", host, hutch.MaxHeaderValues)
		}
		list = append(list, secret.Header(name, value, parts...))
	}
	return list, nil
}

// broker passes a connection to the broker. up is the first connection that the broker will ask for.
func (g *Gateway) broker(p *connection, host string, down, up net.Conn) {
	first := make(chan net.Conn, 1)
	first <- up
	down.SetReadDeadline(time.Time{})
	b := g.opt.Brokering
	b.Broker.Serve(p.ctx, down, broker.Route{
		Sandbox: g.opt.Sandbox, Host: host, Port: p.dst.Port(),
		Credentials: func() ([]secret.Credential, *secret.Redactor, error) {
			list, err := g.credentials(host, p.dst.Port())
			return list, b.Answers(list), err
		},
		Begin: g.beginRequest,
		Dial: func(ctx context.Context) (net.Conn, error) {
			select {
			case up := <-first:
				return up, nil
			default:
				return g.dial(ctx, "tcp", p.dst)
			}
		},
		Seen: func(u broker.Use) { g.brokered(p, host, u) },
	})
}

// mostRequests bounds the requests of a sandbox that are in the broker, even if its limit of connections is higher.
const mostRequests = 1024

// beginRequest counts a request in the broker. A request can have its own connection to the host, and takes as much
// memory of the server as a connection, so the limit of connections also applies to all requests together.
func (g *Gateway) beginRequest() (end func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := min(cmp.Or(g.rules.network.Limits.Connections, defaultConnections), mostRequests)
	if g.requests >= most {
		return nil, fmt.Errorf("the limit of %d requests at once (network.limits.connections) is reached", most)
	}
	g.requests++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.requests--
	}, nil
}

// brokered records a request that the broker has answered.
func (g *Gateway) brokered(p *connection, host string, u broker.Use) {
	line := hutch.Connection{
		Time: u.Began.UTC(), Protocol: "http", Host: host, Address: p.dst.Addr().String(), Port: int(p.dst.Port()), Verdict: hutch.Allowed,
		Rule: p.ruleWith(u.Secrets), Method: shown(u.Method), Status: u.Status, Duration: hutch.InSeconds(time.Since(u.Began)),
	}
	if u.Err != nil {
		line.Reason = because(u.Err)
	}
	if u.Status == http.StatusMisdirectedRequest {
		g.deny(line, line.Reason)
	} else {
		g.counts.requests.Add(1)
		g.opt.Observe.Decided("http", hutch.Allowed)
		g.record.add(line)
	}
	if g.opt.Brokering.Used != nil {
		g.opt.Brokering.Used(net.JoinHostPort(host, strconv.Itoa(line.Port)), u)
	}
}

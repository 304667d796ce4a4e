package policy

import (
	"context"
	"net"
	"strconv"

	"hutch"
)

// To show a port to the world is the owner's alone, as to share the sandbox is;
// to connect with one is for whoever may write to it.
var (
	show    = rule{scopes: []hutch.Scope{hutch.ScopePorts}}
	connect = rule{scopes: []hutch.Scope{hutch.ScopePorts, hutch.ScopeExec}, access: hutch.WriteAccess}
	shown   = rule{scopes: []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec, hutch.ScopePorts}, access: hutch.ReadAccess}
)

// Expose implements hutch.Ports.
func (p *Policy) Expose(ctx context.Context, sandbox string, req hutch.ExposeRequest) (hutch.Port, error) {
	return do(ctx, p, call{verb: "Expose", sandbox: sandbox, target: strconv.Itoa(req.Port)}, func(ctx context.Context) (hutch.Port, error) {
		return p.next.Expose(ctx, sandbox, req)
	})
}

// Unexpose implements hutch.Ports.
func (p *Policy) Unexpose(ctx context.Context, sandbox string, port int) error {
	return carry(ctx, p, call{verb: "Unexpose", sandbox: sandbox, target: strconv.Itoa(port)}, func(ctx context.Context) error {
		return p.next.Unexpose(ctx, sandbox, port)
	})
}

// Ports implements hutch.Ports.
func (p *Policy) Ports(ctx context.Context, sandbox string) ([]hutch.Port, error) {
	return do(ctx, p, call{verb: "Ports", sandbox: sandbox}, func(ctx context.Context) ([]hutch.Port, error) {
		return p.next.Ports(ctx, sandbox)
	})
}

// ValidatePortToken implements hutch.Ports.
func (p *Policy) ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error) {
	return do(ctx, p, call{verb: "ValidatePortToken", sandbox: sandbox, target: strconv.Itoa(port)}, func(ctx context.Context) (bool, error) {
		return p.next.ValidatePortToken(ctx, sandbox, port, token)
	})
}

// LinkPort implements hutch.Ports.
func (p *Policy) LinkPort(ctx context.Context, sandbox string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	return do(ctx, p, call{verb: "LinkPort", sandbox: sandbox, target: strconv.Itoa(port)}, func(ctx context.Context) (hutch.PortLink, error) {
		return p.next.LinkPort(ctx, sandbox, port, lifetime)
	})
}

// DialPort implements hutch.Ports.
func (p *Policy) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	return do(ctx, p, call{verb: "DialPort", sandbox: sandbox, target: strconv.Itoa(port)}, func(ctx context.Context) (net.Conn, error) {
		return p.next.DialPort(ctx, sandbox, port)
	})
}

// WatchPorts implements hutch.Ports.
func (p *Policy) WatchPorts(ctx context.Context, sandbox string, out func(hutch.PortEvent) error) error {
	return carry(ctx, p, call{verb: "WatchPorts", sandbox: sandbox}, func(ctx context.Context) error {
		return p.next.WatchPorts(ctx, sandbox, out)
	})
}

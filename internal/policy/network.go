package policy

import (
	"context"
	"strings"

	"hutch"
	"hutch/internal/auth"
)

// Network implements hutch.Networks.
func (p *Policy) Network(ctx context.Context, sandbox string) (hutch.NetworkState, error) {
	return do(ctx, p, call{verb: "Network", sandbox: sandbox}, func(ctx context.Context) (hutch.NetworkState, error) {
		return p.next.Network(ctx, sandbox)
	})
}

// SetNetwork implements hutch.Networks.
func (p *Policy) SetNetwork(ctx context.Context, sandbox string, n hutch.Network) (hutch.NetworkState, error) {
	target := strings.TrimSpace(string(n.Mode) + " " + strings.Join(n.Allow, " "))
	return do(ctx, p, call{verb: "SetNetwork", sandbox: sandbox, target: target}, func(ctx context.Context) (hutch.NetworkState, error) {
		if err := p.mayReach(ctx, n); err != nil {
			return hutch.NetworkState{}, err
		}
		return p.next.SetNetwork(ctx, sandbox, n)
	})
}

// Connections implements hutch.Networks.
func (p *Policy) Connections(ctx context.Context, sandbox string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	return do(ctx, p, call{verb: "Connections", sandbox: sandbox}, func(ctx context.Context) (hutch.ConnectionLog, error) {
		return p.next.Connections(ctx, sandbox, q)
	})
}

// mayReach refuses a network beyond that of the server, unless the caller has
// the scope admin: who runs code may not open the door for it.
func (p *Policy) mayReach(ctx context.Context, n hutch.Network) error {
	if n.IsZero() || auth.From(ctx).Has(hutch.ScopeAdmin) {
		return nil
	}
	n, err := n.Canonical()
	if err != nil {
		return err
	}
	return n.Within(p.opt.Network)
}

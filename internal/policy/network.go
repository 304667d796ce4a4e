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
	return do(ctx, p, call{verb: "SetNetwork", sandbox: sandbox, target: said(&n)}, func(ctx context.Context) (hutch.NetworkState, error) {
		if err := p.mayReach(ctx, n); err != nil {
			return hutch.NetworkState{}, err
		}
		return p.next.SetNetwork(ctx, sandbox, n)
	})
}

// said is a network for the record.
func said(n *hutch.Network) string {
	if n == nil {
		return ""
	}
	return strings.TrimSpace(string(n.Mode) + " " + strings.Join(n.Allow, " "))
}

// Connections implements hutch.Networks.
func (p *Policy) Connections(ctx context.Context, sandbox string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	return do(ctx, p, call{verb: "Connections", sandbox: sandbox}, func(ctx context.Context) (hutch.ConnectionLog, error) {
		return p.next.Connections(ctx, sandbox, q)
	})
}

// mayReach refuses a network beyond that of the caller's token or, where it has
// none, of the server, unless the caller has the scope admin: who runs code may
// not open the door for it.
func (p *Policy) mayReach(ctx context.Context, n hutch.Network) error {
	who := auth.From(ctx)
	if n.IsZero() || who.Has(hutch.ScopeAdmin) {
		return nil
	}
	ceiling := p.opt.Network
	if who.Network != nil {
		ceiling = *who.Network
	}
	n, err := n.Canonical()
	if err != nil {
		return err
	}
	return n.Within(ceiling)
}

package policy

import (
	"context"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/ceiling"
	"hutch/internal/verb"
)

// permit refuses a request for more than the caller's token allows. Scopes and quotas have been checked already.
func (p *Policy) permit(ctx context.Context, c verb.Call) error {
	switch req := c.Request.(type) {
	case hutch.CreateRequest:
		return p.mayReach(ctx, req.Network)
	case hutch.BuildRequest:
		return p.mayReach(ctx, req.Network)
	case hutch.Question:
		return p.mayReach(ctx, req.Network)
	case hutch.Network:
		return p.mayReach(ctx, req)
	case hutch.SecretRequest:
		return p.mayBroker(ctx, c.Target, req.Brokered)
	case hutch.TemplateRequest:
		if err := p.mayReach(ctx, req.Network); err != nil {
			return err
		}
		return mayShare(ctx, "a template", req.Shared)
	case hutch.SnapshotRequest:
		return mayShare(ctx, "a snapshot", req.Shared)
	case hutch.PullRequest:
		return mayShare(ctx, "an image", req.Shared)
	}
	return nil
}

// mayReach refuses a network that is above the caller's ceiling.
func (p *Policy) mayReach(ctx context.Context, n hutch.Network) error {
	return ceiling.Ask(caller.From(ctx).Principal, n, p.opt.Network)
}

// mayBroker refuses to broker a secret for hosts that the caller's sandboxes cannot reach, because a sandbox that
// requests the secret can reach those hosts.
func (p *Policy) mayBroker(ctx context.Context, name string, b *hutch.Brokering) error {
	if b == nil {
		return nil
	}
	whole, err := b.Complete(name)
	if err != nil {
		return err
	}
	var n hutch.Network
	for _, text := range whole.Hosts {
		host, port, err := hutch.ParseBrokeredHost(text)
		if err != nil {
			return err
		}
		n.Allow = append(n.Allow, hutch.NetworkRule{Name: host, Port: port})
	}
	return p.mayReach(ctx, n)
}

// mayShare refuses to share something with all owners unless the caller is an administrator. A snapshot contains
// everything that was in memory, and other owners would run the programs of a shared image.
func mayShare(ctx context.Context, what string, shared bool) error {
	if shared && !caller.From(ctx).Principal.Has(hutch.ScopeAdmin) {
		return hutch.Errorf(hutch.Denied, "to share %s with all needs the scope admin: leave shared out, or ask an administrator", what)
	}
	return nil
}

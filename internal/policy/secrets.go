package policy

import (
	"context"
	"net"
	"strconv"

	"hutch"
)

// SetSecret implements hutch.Secrets.
func (p *Policy) SetSecret(ctx context.Context, name string, req hutch.SecretRequest) (hutch.Secret, error) {
	return do(ctx, p, call{verb: "SetSecret", target: name}, func(ctx context.Context) (hutch.Secret, error) {
		if err := p.mayBroker(ctx, name, req.Brokered); err != nil {
			return hutch.Secret{}, err
		}
		return p.opt.Secrets.SetSecret(ctx, name, req)
	})
}

// mayBroker refuses to broker a secret for hosts that the caller could not have
// its sandboxes reach: to ask for the secret is to reach them.
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
		n.Allow = append(n.Allow, net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	return p.mayReach(ctx, n)
}

// Secrets implements hutch.Secrets.
func (p *Policy) Secrets(ctx context.Context) ([]hutch.Secret, error) {
	return do(ctx, p, call{verb: "Secrets"}, func(ctx context.Context) ([]hutch.Secret, error) {
		return p.opt.Secrets.Secrets(ctx)
	})
}

// DeleteSecret implements hutch.Secrets.
func (p *Policy) DeleteSecret(ctx context.Context, name string) error {
	return carry(ctx, p, call{verb: "DeleteSecret", target: name}, func(ctx context.Context) error {
		return p.opt.Secrets.DeleteSecret(ctx, name)
	})
}

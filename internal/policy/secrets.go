package policy

import (
	"context"

	"hutch"
)

// SetSecret implements hutch.Secrets.
func (p *Policy) SetSecret(ctx context.Context, name string, req hutch.SecretRequest) (hutch.Secret, error) {
	return do(ctx, p, call{verb: "SetSecret", target: name}, func(ctx context.Context) (hutch.Secret, error) {
		return p.opt.Secrets.SetSecret(ctx, name, req)
	})
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

package policy

import (
	"context"
	"strings"

	"hutch"
)

// CreateToken implements hutch.Tokens.
func (p *Policy) CreateToken(ctx context.Context, req hutch.TokenRequest) (hutch.MintedToken, error) {
	return do(ctx, p, call{verb: "CreateToken", target: strings.TrimSpace(req.Name + " " + said(req.Network))}, func(ctx context.Context) (hutch.MintedToken, error) {
		return p.opt.Tokens.CreateToken(ctx, req)
	})
}

// Token implements hutch.Tokens.
func (p *Policy) Token(ctx context.Context, token string) (hutch.Token, error) {
	return do(ctx, p, call{verb: "Token", target: token}, func(ctx context.Context) (hutch.Token, error) {
		return p.opt.Tokens.Token(ctx, token)
	})
}

// Tokens implements hutch.Tokens.
func (p *Policy) Tokens(ctx context.Context) ([]hutch.Token, error) {
	return do(ctx, p, call{verb: "Tokens"}, func(ctx context.Context) ([]hutch.Token, error) {
		return p.opt.Tokens.Tokens(ctx)
	})
}

// RotateToken implements hutch.Tokens.
func (p *Policy) RotateToken(ctx context.Context, token string) (hutch.MintedToken, error) {
	return do(ctx, p, call{verb: "RotateToken", target: token}, func(ctx context.Context) (hutch.MintedToken, error) {
		return p.opt.Tokens.RotateToken(ctx, token)
	})
}

// RevokeToken implements hutch.Tokens.
func (p *Policy) RevokeToken(ctx context.Context, token string) (hutch.Token, error) {
	return do(ctx, p, call{verb: "RevokeToken", target: token}, func(ctx context.Context) (hutch.Token, error) {
		return p.opt.Tokens.RevokeToken(ctx, token)
	})
}

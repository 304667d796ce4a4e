package client

import (
	"context"

	"hutch"
	"hutch/internal/stream"
)

var (
	_ hutch.Tokens  = (*Client)(nil)
	_ hutch.Sharing = (*Client)(nil)
)

// CreateToken implements hutch.Tokens.
func (c *Client) CreateToken(ctx context.Context, req hutch.TokenRequest) (hutch.MintedToken, error) {
	return call[hutch.MintedToken](ctx, c, at("CreateToken").check(req.Check()), req)
}

// Tokens implements hutch.Tokens.
func (c *Client) Tokens(ctx context.Context) ([]hutch.Token, error) {
	return call[[]hutch.Token](ctx, c, at("Tokens"), nil)
}

// Token implements hutch.Tokens.
func (c *Client) Token(ctx context.Context, token string) (hutch.Token, error) {
	return call[hutch.Token](ctx, c, at("Token", token), nil)
}

// RotateToken implements hutch.Tokens.
func (c *Client) RotateToken(ctx context.Context, token string) (hutch.MintedToken, error) {
	return call[hutch.MintedToken](ctx, c, at("RotateToken", token), nil)
}

// RevokeToken implements hutch.Tokens.
func (c *Client) RevokeToken(ctx context.Context, token string) (hutch.Token, error) {
	return call[hutch.Token](ctx, c, at("RevokeToken", token), nil)
}

// Share implements hutch.Sharing.
func (c *Client) Share(ctx context.Context, sandbox, token string, access hutch.Access) (hutch.Grant, error) {
	return call[hutch.Grant](ctx, c, at("Share", sandbox, token), stream.Share{Access: access})
}

// Unshare implements hutch.Sharing.
func (c *Client) Unshare(ctx context.Context, sandbox, token string) error {
	_, err := call[struct{}](ctx, c, at("Unshare", sandbox, token), nil)
	return err
}

// Grants implements hutch.Sharing.
func (c *Client) Grants(ctx context.Context, sandbox string) ([]hutch.Grant, error) {
	return call[[]hutch.Grant](ctx, c, at("Grants", sandbox), nil)
}

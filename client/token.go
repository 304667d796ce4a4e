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
	if err := req.Check(); err != nil {
		return hutch.MintedToken{}, err
	}
	return call[hutch.MintedToken](ctx, c, "POST", "/v1/tokens", req)
}

// Tokens implements hutch.Tokens.
func (c *Client) Tokens(ctx context.Context) ([]hutch.Token, error) {
	return call[[]hutch.Token](ctx, c, "GET", "/v1/tokens", nil)
}

// Token implements hutch.Tokens.
func (c *Client) Token(ctx context.Context, token string) (hutch.Token, error) {
	return ofToken[hutch.Token](ctx, c, "GET", token, "")
}

// RotateToken implements hutch.Tokens.
func (c *Client) RotateToken(ctx context.Context, token string) (hutch.MintedToken, error) {
	return ofToken[hutch.MintedToken](ctx, c, "POST", token, "/rotate")
}

// RevokeToken implements hutch.Tokens.
func (c *Client) RevokeToken(ctx context.Context, token string) (hutch.Token, error) {
	return ofToken[hutch.Token](ctx, c, "DELETE", token, "")
}

// ofToken makes a call about one token.
func ofToken[T any](ctx context.Context, c *Client, method, token, rest string) (v T, err error) {
	if err := hutch.CheckID(token); err != nil {
		return v, err
	}
	return call[T](ctx, c, method, "/v1/tokens/"+token+rest, nil)
}

// Share implements hutch.Sharing.
func (c *Client) Share(ctx context.Context, sandbox, token string, access hutch.Access) (hutch.Grant, error) {
	path, err := grantPath(sandbox, token)
	if err != nil {
		return hutch.Grant{}, err
	}
	return call[hutch.Grant](ctx, c, "PUT", path, stream.Share{Access: access})
}

// Unshare implements hutch.Sharing.
func (c *Client) Unshare(ctx context.Context, sandbox, token string) error {
	path, err := grantPath(sandbox, token)
	if err != nil {
		return err
	}
	_, err = call[struct{}](ctx, c, "DELETE", path, nil)
	return err
}

// Grants implements hutch.Sharing.
func (c *Client) Grants(ctx context.Context, sandbox string) ([]hutch.Grant, error) {
	path, err := sandboxPath(sandbox)
	if err != nil {
		return nil, err
	}
	return call[[]hutch.Grant](ctx, c, "GET", path+"/grants", nil)
}

func grantPath(sandbox, token string) (string, error) {
	path, err := sandboxPath(sandbox)
	if err != nil {
		return "", err
	}
	return path + "/grants/" + token, hutch.CheckID(token)
}

package client

import (
	"context"

	"hutch"
)

var _ hutch.SSH = (*Client)(nil)

// SSHServer implements hutch.SSH.
func (c *Client) SSHServer(ctx context.Context) (hutch.SSHServer, error) {
	return call[hutch.SSHServer](ctx, c, at("SSHServer"), nil)
}

// AddSSHKey implements hutch.SSH.
func (c *Client) AddSSHKey(ctx context.Context, req hutch.SSHKeyRequest) (hutch.SSHKey, error) {
	return call[hutch.SSHKey](ctx, c, at("AddSSHKey").check(req.Check()), req)
}

// SSHKeys implements hutch.SSH.
func (c *Client) SSHKeys(ctx context.Context) ([]hutch.SSHKey, error) {
	return call[[]hutch.SSHKey](ctx, c, at("SSHKeys"), nil)
}

// DeleteSSHKey implements hutch.SSH.
func (c *Client) DeleteSSHKey(ctx context.Context, key string) error {
	_, err := call[struct{}](ctx, c, at("DeleteSSHKey", key), nil)
	return err
}

// SignSSHKey implements hutch.SSH.
func (c *Client) SignSSHKey(ctx context.Context, req hutch.SSHSignRequest) (hutch.SSHCertificate, error) {
	return call[hutch.SSHCertificate](ctx, c, at("SignSSHKey").check(req.Check()), req)
}

package client

import (
	"cmp"
	"context"
	"unicode/utf8"

	"hutch"
)

var _ hutch.Secrets = (*Client)(nil)

// SetSecret implements hutch.Secrets.
func (c *Client) SetSecret(ctx context.Context, name string, req hutch.SecretRequest) (hutch.Secret, error) {
	if err := hutch.CheckSecretName(name); err != nil {
		return hutch.Secret{}, err
	}
	if !utf8.ValidString(req.Value) { // not checkText, whose error would show the value
		return hutch.Secret{}, hutch.Errorf(hutch.Invalid, "the value is not UTF-8: encode it, in base64 say").Naming(hutch.AboutField, "value")
	}
	return call[hutch.Secret](ctx, c, at("SetSecret", name).check(cmp.Or(req.Check(), checkText("", "", req.Labels))), req)
}

// Secrets implements hutch.Secrets.
func (c *Client) Secrets(ctx context.Context) ([]hutch.Secret, error) {
	return call[[]hutch.Secret](ctx, c, at("Secrets"), nil)
}

// DeleteSecret implements hutch.Secrets.
func (c *Client) DeleteSecret(ctx context.Context, name string) error {
	if err := hutch.CheckSecretName(name); err != nil {
		return err
	}
	_, err := call[struct{}](ctx, c, at("DeleteSecret", name), nil)
	return err
}

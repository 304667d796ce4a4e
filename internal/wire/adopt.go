package wire

import "context"

// Identity replaces parts of [Boot] in the agent of an instance that was prepared in advance, or restored from
// another's memory.
type Identity struct {
	Hostname string   `json:"hostname"`
	Env      []string `json:"env"` // KEY=VALUE, the base of every command's environment
	// Token is the token to prove from now on; empty keeps the present one.
	Token string `json:"token,omitempty"`
	// Tell has code for each language. Live interpreters get it before their next run.
	Tell map[string]string `json:"tell,omitempty"`
}

// Adopt gives the instance an identity. Running processes keep the old one. If the token changes, all connections
// close, and this client cannot be used any more.
func (c *Client) Adopt(ctx context.Context, i Identity) error {
	_, err := call[struct{}](ctx, c, Request{Op: "adopt", Adopt: &i})
	return err
}

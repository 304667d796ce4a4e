package wire

import "context"

// Identity is what the agent of a place that was made before it was known for
// whom, or from another's memory, is told of that, in place of what [Boot] had.
type Identity struct {
	Hostname string   `json:"hostname"`
	Env      []string `json:"env"` // KEY=VALUE, the base of every command's environment
	// Token is the one to be proved from now on; empty is the one it was.
	Token string `json:"token,omitempty"`
	// Tell is what the living interpreters of each language are sent, before
	// their next run.
	Tell map[string]string `json:"tell,omitempty"`
}

// Adopt gives the place an identity. What runs there already keeps its old one.
// With another token all connections close, and this client is of no use any
// more.
func (c *Client) Adopt(ctx context.Context, i Identity) error {
	_, err := call[struct{}](ctx, c, Request{Op: "adopt", Adopt: &i})
	return err
}

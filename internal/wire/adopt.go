package wire

import "context"

// Identity is what the agent of a place that was made before it was known for
// whom is told of that, in place of what [Boot] had.
type Identity struct {
	Hostname string   `json:"hostname"`
	Env      []string `json:"env"` // KEY=VALUE, the base of every command's environment
}

// Adopt gives the place an identity. What runs there already keeps its old one.
func (c *Client) Adopt(ctx context.Context, i Identity) error {
	_, err := call[struct{}](ctx, c, Request{Op: "adopt", Adopt: &i})
	return err
}

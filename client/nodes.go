package client

import (
	"context"
	"net/url"

	"hutch"
)

var _ hutch.Nodes = (*Client)(nil)

// Nodes implements hutch.Nodes.
func (c *Client) Nodes(ctx context.Context) (hutch.NodeList, error) {
	return call[hutch.NodeList](ctx, c, at("Nodes"), nil)
}

// Node implements hutch.Nodes.
func (c *Client) Node(ctx context.Context, node string) (hutch.Node, error) {
	return call[hutch.Node](ctx, c, at("Node", node), nil)
}

// CordonNode implements hutch.Nodes.
func (c *Client) CordonNode(ctx context.Context, node string) (hutch.Node, error) {
	return call[hutch.Node](ctx, c, at("CordonNode", node), nil)
}

// UncordonNode implements hutch.Nodes.
func (c *Client) UncordonNode(ctx context.Context, node string) (hutch.Node, error) {
	return call[hutch.Node](ctx, c, at("UncordonNode", node), nil)
}

// DrainNode implements hutch.Nodes.
func (c *Client) DrainNode(ctx context.Context, node string) (hutch.Node, error) {
	return call[hutch.Node](ctx, c, at("DrainNode", node), nil)
}

// RemoveNode implements hutch.Nodes.
func (c *Client) RemoveNode(ctx context.Context, node string, force bool) (hutch.RemovedNode, error) {
	to := at("RemoveNode", node)
	if force {
		to = to.with(url.Values{"force": {"true"}})
	}
	return call[hutch.RemovedNode](ctx, c, to, nil)
}

package wrap

import (
	"context"

	"hutch"
	"hutch/internal/verb"
)

// NodeService is a hutch.Nodes that calls Next with Hook around each call.
type NodeService struct {
	Next hutch.Nodes
	Hook Hook
}

// Nodes implements hutch.Nodes.
func (s *NodeService) Nodes(ctx context.Context) (hutch.NodeList, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Nodes"}, func(ctx context.Context) (hutch.NodeList, error) {
		return next(ctx, s).Nodes(ctx)
	})
}

// Node implements hutch.Nodes.
func (s *NodeService) Node(ctx context.Context, node string) (hutch.Node, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Node", Target: node}, func(ctx context.Context) (hutch.Node, error) {
		return next(ctx, s).Node(ctx, node)
	})
}

// CordonNode implements hutch.Nodes.
func (s *NodeService) CordonNode(ctx context.Context, node string) (hutch.Node, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CordonNode", Target: node}, func(ctx context.Context) (hutch.Node, error) {
		return next(ctx, s).CordonNode(ctx, node)
	})
}

// UncordonNode implements hutch.Nodes.
func (s *NodeService) UncordonNode(ctx context.Context, node string) (hutch.Node, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "UncordonNode", Target: node}, func(ctx context.Context) (hutch.Node, error) {
		return next(ctx, s).UncordonNode(ctx, node)
	})
}

// DrainNode implements hutch.Nodes.
func (s *NodeService) DrainNode(ctx context.Context, node string) (hutch.Node, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "DrainNode", Target: node}, func(ctx context.Context) (hutch.Node, error) {
		return next(ctx, s).DrainNode(ctx, node)
	})
}

// RemoveNode implements hutch.Nodes.
func (s *NodeService) RemoveNode(ctx context.Context, node string, force bool) (hutch.RemovedNode, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "RemoveNode", Target: node}, func(ctx context.Context) (hutch.RemovedNode, error) {
		return next(ctx, s).RemoveNode(ctx, node, force)
	})
}

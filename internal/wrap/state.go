package wrap

import (
	"context"
	"net"
	"strconv"

	"hutch"
	"hutch/internal/verb"
)

// Expose implements hutch.Ports.
func (s *Service) Expose(ctx context.Context, sandbox string, req hutch.ExposeRequest) (hutch.Port, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Expose", Sandbox: sandbox, Target: strconv.Itoa(req.Port), Request: req}, func(ctx context.Context) (hutch.Port, error) {
		return s.Next.Expose(ctx, sandbox, req)
	})
}

// Unexpose implements hutch.Ports.
func (s *Service) Unexpose(ctx context.Context, sandbox string, port int) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Unexpose", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) error {
		return s.Next.Unexpose(ctx, sandbox, port)
	})
}

// Ports implements hutch.Ports.
func (s *Service) Ports(ctx context.Context, sandbox string) ([]hutch.Port, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Ports", Sandbox: sandbox}, func(ctx context.Context) ([]hutch.Port, error) {
		return s.Next.Ports(ctx, sandbox)
	})
}

// ValidatePortToken implements hutch.Ports.
func (s *Service) ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "ValidatePortToken", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) (bool, error) {
		return s.Next.ValidatePortToken(ctx, sandbox, port, token)
	})
}

// LinkPort implements hutch.Ports.
func (s *Service) LinkPort(ctx context.Context, sandbox string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "LinkPort", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) (hutch.PortLink, error) {
		return s.Next.LinkPort(ctx, sandbox, port, lifetime)
	})
}

// DialPort implements hutch.Ports.
func (s *Service) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "DialPort", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) (net.Conn, error) {
		return s.Next.DialPort(ctx, sandbox, port)
	})
}

// WatchPorts implements hutch.Ports.
func (s *Service) WatchPorts(ctx context.Context, sandbox string, out func(hutch.PortEvent) error) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "WatchPorts", Sandbox: sandbox}, func(ctx context.Context) error {
		return s.Next.WatchPorts(ctx, sandbox, out)
	})
}

// Network implements hutch.Networks.
func (s *Service) Network(ctx context.Context, sandbox string) (hutch.NetworkState, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Network", Sandbox: sandbox}, func(ctx context.Context) (hutch.NetworkState, error) {
		return s.Next.Network(ctx, sandbox)
	})
}

// SetNetwork implements hutch.Networks.
func (s *Service) SetNetwork(ctx context.Context, sandbox string, n hutch.Network) (hutch.NetworkState, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SetNetwork", Sandbox: sandbox, Target: networkTarget(&n), Request: n}, func(ctx context.Context) (hutch.NetworkState, error) {
		return s.Next.SetNetwork(ctx, sandbox, n)
	})
}

// Connections implements hutch.Networks.
func (s *Service) Connections(ctx context.Context, sandbox string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Connections", Sandbox: sandbox, Request: q}, func(ctx context.Context) (hutch.ConnectionLog, error) {
		return s.Next.Connections(ctx, sandbox, q)
	})
}

// Snapshot implements hutch.Snapshots.
func (s *Service) Snapshot(ctx context.Context, sandbox string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Snapshot", Sandbox: sandbox, Target: req.Name, Request: req}, func(ctx context.Context) (hutch.Snapshot, error) {
		return s.Next.Snapshot(ctx, sandbox, req)
	})
}

// CreateTemplate implements hutch.Snapshots.
func (s *Service) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CreateTemplate", Target: req.Name, Request: req}, func(ctx context.Context) (hutch.Snapshot, error) {
		return s.Next.CreateTemplate(ctx, req)
	})
}

// Snapshots implements hutch.Snapshots.
func (s *Service) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Snapshots"}, func(ctx context.Context) ([]hutch.Snapshot, error) {
		return s.Next.Snapshots(ctx)
	})
}

// DeleteSnapshot implements hutch.Snapshots.
func (s *Service) DeleteSnapshot(ctx context.Context, snapshot string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteSnapshot", Target: snapshot}, func(ctx context.Context) error {
		return s.Next.DeleteSnapshot(ctx, snapshot)
	})
}

// Fork implements hutch.Snapshots.
func (s *Service) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Fork", Sandbox: sandbox, Request: req}, func(ctx context.Context) ([]hutch.Sandbox, error) {
		return s.Next.Fork(ctx, sandbox, req)
	})
}

// Pause implements hutch.Snapshots.
func (s *Service) Pause(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Pause", Sandbox: sandbox}, func(ctx context.Context) (hutch.Sandbox, error) {
		return s.Next.Pause(ctx, sandbox)
	})
}

// Hibernate implements hutch.Snapshots.
func (s *Service) Hibernate(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Hibernate", Sandbox: sandbox}, func(ctx context.Context) (hutch.Sandbox, error) {
		return s.Next.Hibernate(ctx, sandbox)
	})
}

// Resume implements hutch.Snapshots.
func (s *Service) Resume(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Resume", Sandbox: sandbox}, func(ctx context.Context) (hutch.Sandbox, error) {
		return s.Next.Resume(ctx, sandbox)
	})
}

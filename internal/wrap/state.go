package wrap

import (
	"context"
	"net"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/verb"
)

// Expose implements hutch.Ports.
func (s *Service) Expose(ctx context.Context, sandbox string, req hutch.ExposeRequest) (hutch.Port, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Expose", Sandbox: sandbox, Target: strconv.Itoa(req.Port), Request: req}, func(ctx context.Context) (hutch.Port, error) {
		return next(ctx, s).Expose(ctx, sandbox, req)
	})
}

// Unexpose implements hutch.Ports.
func (s *Service) Unexpose(ctx context.Context, sandbox string, port int) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Unexpose", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) error {
		return next(ctx, s).Unexpose(ctx, sandbox, port)
	})
}

// Ports implements hutch.Ports.
func (s *Service) Ports(ctx context.Context, sandbox string) ([]hutch.Port, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Ports", Sandbox: sandbox}, func(ctx context.Context) ([]hutch.Port, error) {
		return next(ctx, s).Ports(ctx, sandbox)
	})
}

// ValidatePortToken implements hutch.Ports.
func (s *Service) ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "ValidatePortToken", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) (bool, error) {
		return next(ctx, s).ValidatePortToken(ctx, sandbox, port, token)
	})
}

// LinkPort implements hutch.Ports.
func (s *Service) LinkPort(ctx context.Context, sandbox string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "LinkPort", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) (hutch.PortLink, error) {
		return next(ctx, s).LinkPort(ctx, sandbox, port, lifetime)
	})
}

// DialPort implements hutch.Ports.
func (s *Service) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "DialPort", Sandbox: sandbox, Target: strconv.Itoa(port)}, func(ctx context.Context) (net.Conn, error) {
		return next(ctx, s).DialPort(ctx, sandbox, port)
	})
}

// WatchPorts implements hutch.Ports.
func (s *Service) WatchPorts(ctx context.Context, sandbox string, out func(hutch.PortEvent) error) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "WatchPorts", Sandbox: sandbox}, func(ctx context.Context) error {
		return next(ctx, s).WatchPorts(ctx, sandbox, out)
	})
}

// Network implements hutch.Networks.
func (s *Service) Network(ctx context.Context, sandbox string) (hutch.NetworkState, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Network", Sandbox: sandbox}, func(ctx context.Context) (hutch.NetworkState, error) {
		return next(ctx, s).Network(ctx, sandbox)
	})
}

// SetNetwork implements hutch.Networks.
func (s *Service) SetNetwork(ctx context.Context, sandbox string, n hutch.Network) (hutch.NetworkState, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SetNetwork", Sandbox: sandbox, Target: networkTarget(&n), Request: n}, func(ctx context.Context) (hutch.NetworkState, error) {
		return next(ctx, s).SetNetwork(ctx, sandbox, n)
	})
}

// Connections implements hutch.Networks.
func (s *Service) Connections(ctx context.Context, sandbox string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Connections", Sandbox: sandbox, Request: q}, func(ctx context.Context) (hutch.ConnectionLog, error) {
		return next(ctx, s).Connections(ctx, sandbox, q)
	})
}

// Snapshot implements hutch.Snapshots.
func (s *Service) Snapshot(ctx context.Context, sandbox string, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Snapshot", Sandbox: sandbox, Target: req.Name, Request: req}, func(ctx context.Context) (hutch.Snapshot, error) {
		return next(ctx, s).Snapshot(ctx, sandbox, req)
	})
}

// CreateTemplate implements hutch.Snapshots.
func (s *Service) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CreateTemplate", Target: req.Name, Request: req}, func(ctx context.Context) (hutch.Snapshot, error) {
		return next(ctx, s).CreateTemplate(ctx, req)
	})
}

// Snapshots implements hutch.Snapshots.
func (s *Service) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Snapshots"}, func(ctx context.Context) ([]hutch.Snapshot, error) {
		return next(ctx, s).Snapshots(ctx)
	})
}

// TagSnapshot implements hutch.Snapshots.
func (s *Service) TagSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "TagSnapshot", Target: snapshot + " " + req.Name, Request: req}, func(ctx context.Context) (hutch.Snapshot, error) {
		return next(ctx, s).TagSnapshot(ctx, snapshot, req)
	})
}

// DeleteSnapshot implements hutch.Snapshots.
func (s *Service) DeleteSnapshot(ctx context.Context, snapshot string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteSnapshot", Target: snapshot}, func(ctx context.Context) error {
		return next(ctx, s).DeleteSnapshot(ctx, snapshot)
	})
}

// DiffSnapshot implements hutch.Snapshots.
func (s *Service) DiffSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	target := strings.TrimRight(snapshot+" "+req.To, " ")
	return Around(ctx, s.Hook, verb.Call{Verb: "DiffSnapshot", Sandbox: req.SandboxID, Target: target, Request: req}, func(ctx context.Context) (hutch.SnapshotDiff, error) {
		return next(ctx, s).DiffSnapshot(ctx, snapshot, req)
	})
}

// Fork implements hutch.Snapshots.
func (s *Service) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Fork", Sandbox: sandbox, Request: req}, func(ctx context.Context) ([]hutch.Sandbox, error) {
		return next(ctx, s).Fork(ctx, sandbox, req)
	})
}

// Pause implements hutch.Snapshots.
func (s *Service) Pause(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Pause", Sandbox: sandbox}, func(ctx context.Context) (hutch.Sandbox, error) {
		return next(ctx, s).Pause(ctx, sandbox)
	})
}

// Hibernate implements hutch.Snapshots.
func (s *Service) Hibernate(ctx context.Context, sandbox string, req hutch.HibernateRequest) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Hibernate", Sandbox: sandbox, Request: req}, func(ctx context.Context) (hutch.Sandbox, error) {
		return next(ctx, s).Hibernate(ctx, sandbox, req)
	})
}

// Resume implements hutch.Snapshots.
func (s *Service) Resume(ctx context.Context, sandbox string) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Resume", Sandbox: sandbox}, func(ctx context.Context) (hutch.Sandbox, error) {
		return next(ctx, s).Resume(ctx, sandbox)
	})
}

// StartScreen implements hutch.Screens.
func (s *Service) StartScreen(ctx context.Context, sandbox string, req hutch.ScreenRequest) (hutch.Screen, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "StartScreen", Sandbox: sandbox, Request: req}, func(ctx context.Context) (hutch.Screen, error) {
		return next(ctx, s).StartScreen(ctx, sandbox, req)
	})
}

// Screen implements hutch.Screens.
func (s *Service) Screen(ctx context.Context, sandbox string) (hutch.Screen, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Screen", Sandbox: sandbox}, func(ctx context.Context) (hutch.Screen, error) {
		return next(ctx, s).Screen(ctx, sandbox)
	})
}

// Screenshot implements hutch.Screens.
func (s *Service) Screenshot(ctx context.Context, sandbox string, req hutch.ScreenshotRequest) (hutch.Screenshot, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Screenshot", Sandbox: sandbox, Request: req}, func(ctx context.Context) (hutch.Screenshot, error) {
		return next(ctx, s).Screenshot(ctx, sandbox, req)
	})
}

// ControlScreen implements hutch.Screens. Typed text can be a password, so it is not recorded.
func (s *Service) ControlScreen(ctx context.Context, sandbox string, req hutch.ControlRequest) (hutch.ControlResult, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "ControlScreen", Sandbox: sandbox, Target: req.Names()}, func(ctx context.Context) (hutch.ControlResult, error) {
		return next(ctx, s).ControlScreen(ctx, sandbox, req)
	})
}

// ReadClipboard implements hutch.Screens.
func (s *Service) ReadClipboard(ctx context.Context, sandbox string) (string, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "ReadClipboard", Sandbox: sandbox}, func(ctx context.Context) (string, error) {
		return next(ctx, s).ReadClipboard(ctx, sandbox)
	})
}

// WriteClipboard implements hutch.Screens.
func (s *Service) WriteClipboard(ctx context.Context, sandbox, text string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "WriteClipboard", Sandbox: sandbox}, func(ctx context.Context) error {
		return next(ctx, s).WriteClipboard(ctx, sandbox, text)
	})
}

// OpenURL implements hutch.Screens.
func (s *Service) OpenURL(ctx context.Context, sandbox, address string) (hutch.Process, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "OpenURL", Sandbox: sandbox, Target: urlTarget(address)}, func(ctx context.Context) (hutch.Process, error) {
		return next(ctx, s).OpenURL(ctx, sandbox, address)
	})
}

// ViewScreen implements hutch.Screens.
func (s *Service) ViewScreen(ctx context.Context, sandbox string, control bool) (net.Conn, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "ViewScreen", Sandbox: sandbox, Runs: control}, func(ctx context.Context) (net.Conn, error) {
		return next(ctx, s).ViewScreen(ctx, sandbox, control)
	})
}

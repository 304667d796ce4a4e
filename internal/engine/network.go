package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/driver"
	"hutch/internal/netstack"
	"hutch/internal/store"
)

// Gateway decides what a sandbox can reach.
type Gateway = box.Gateway

// Exit describes the sandbox for which a gateway is made.
type Exit struct {
	Owner, Sandbox string
	Network        hutch.Network // with its hidden values
	Traffic        hutch.Traffic // traffic through the gateway before this one, under an earlier server
	// Secrets returns the names of the secrets that the sandbox has requested so far. It can be called at any time.
	Secrets func() []string
}

// networks are the host's ends of the sandboxes' networks.
type networks struct {
	open   func(Exit) (Gateway, error) // nil if sandboxes have no gateways
	log    *slog.Logger
	hidden hiddenNetworks
}

// gateway returns the gateway of a sandbox; nil if sandboxes have no gateways.
func (n networks) gateway(s *sandbox) (Gateway, error) {
	if n.open == nil {
		return nil, nil
	}
	return s.OpenGateway(func() (Gateway, error) {
		rec := s.Record()
		network, err := n.hidden.whole(rec)
		if err != nil {
			return nil, err
		}
		return n.open(Exit{s.Owner(), s.ID(), network, rec.Traffic, s.SecretNames})
	})
}

// connect connects the network of an instance to the gateway of the sandbox, until disconnect is called. Packets that
// programs send before the call of connect wait for it.
func (n networks) connect(s *sandbox, inst driver.Instance) (disconnect func()) {
	stack, err := n.start(s, inst)
	s.NoteNetwork(err)
	if err != nil {
		n.log.Debug("a sandbox without a network", "sandbox", s.ID(), "err", err)
		return func() {}
	}
	return func() { stack.Close() }
}

func (n networks) start(s *sandbox, inst driver.Instance) (*netstack.Stack, error) {
	g, err := n.gateway(s)
	if err != nil {
		return nil, err
	}
	networked, ok := driver.As[driver.Networked](inst)
	if !ok || g == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "the runtime has no network")
	}
	file, err := networked.Network()
	if err != nil {
		return nil, err
	}
	return netstack.Start(file, g, netstack.Limits{CPU: s.Record().Sandbox.Limits.CPU})
}

// Network implements hutch.Networks.
func (e *Engine) Network(ctx context.Context, id string) (hutch.NetworkState, error) {
	s, err := e.find(ctx, id)
	if err != nil {
		return hutch.NetworkState{}, err
	}
	return e.networks.state(s)
}

func (n networks) state(s *sandbox) (hutch.NetworkState, error) {
	g, err := n.gateway(s)
	if err != nil {
		return hutch.NetworkState{}, err
	}
	state := hutch.NetworkState{SandboxID: s.ID(), Network: s.Record().Sandbox.Network}
	if err := s.NoNetwork(); err != nil {
		state.Unavailable = err.Error()
	}
	if g != nil {
		state.Traffic = g.Traffic()
	}
	return state, nil
}

// SetNetwork implements hutch.Networks.
func (e *Engine) SetNetwork(ctx context.Context, id string, n hutch.Network) (hutch.NetworkState, error) {
	n, err := e.drafter.networkFor(ctx, n)
	if err != nil {
		return hutch.NetworkState{}, err
	}
	var state hutch.NetworkState
	err = e.hold(ctx, id, func(s *sandbox) error {
		old := s.Record().Sandbox.Network.Links
		if err := e.drafter.checkLinks(ctx, slices.DeleteFunc(slices.Clone(n.Links), func(l hutch.NetworkLink) bool { return slices.Contains(old, l) })); err != nil {
			return err
		}
		if err := e.networks.set(ctx, s, n); err != nil {
			return err
		}
		state, err = e.networks.state(s)
		return err
	})
	return state, err
}

// set changes what a sandbox can reach, first in the record on disk.
func (n networks) set(ctx context.Context, s *sandbox, to hutch.Network) error {
	g, err := n.gateway(s)
	if err != nil {
		return err
	}
	rec := s.Record()
	have, err := n.hidden.whole(rec)
	if err != nil {
		return err
	}
	if to, err = to.Completed(have); err != nil {
		return err
	}
	if err := n.hidden.keep(&rec, to); err != nil {
		return err
	}
	err = s.Update(ctx, func(r *store.Record) { r.Sandbox.Network, r.HiddenNetwork = rec.Sandbox.Network, rec.HiddenNetwork })
	if err != nil {
		return err
	}
	if g == nil {
		return nil
	}
	return g.Set(to)
}

// Connections implements hutch.Networks.
func (e *Engine) Connections(ctx context.Context, id string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	none := hutch.ConnectionLog{Connections: []hutch.Connection{}}
	if err := q.Check(); err != nil {
		return none, err
	}
	q.Limit = cmp.Or(q.Limit, hutch.DefaultConnections)
	s, err := e.find(ctx, id)
	if err != nil {
		return none, err
	}
	g, err := e.networks.gateway(s)
	if err != nil || g == nil {
		return none, err
	}
	return g.Connections(ctx, q), nil
}

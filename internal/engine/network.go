package engine

import (
	"cmp"
	"context"
	"slices"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/netstack"
)

// Gateway decides what a sandbox reaches, as package egress does.
type Gateway interface {
	netstack.Handler
	// Set holds to n from now on, and cuts what it does not allow.
	Set(n hutch.Network) error
	Traffic() hutch.Traffic
	// Connections reads the log; q has been checked.
	Connections(ctx context.Context, q hutch.ConnectionQuery) hutch.ConnectionLog
	// Close cuts everything.
	Close()
}

// Exit is a sandbox whose way out is to be made.
type Exit struct {
	Owner, Sandbox string
	Network        hutch.Network
	Traffic        hutch.Traffic // what went out by the one before, under an earlier server
	// Secrets returns the names of the secrets that the sandbox has asked for so
	// far. It can be called at any time.
	Secrets func() []string
}

// gateway returns that of a sandbox, making it when it is asked for first; nil
// where there are none. It lasts as long as the sandbox, also while that sleeps:
// what was resolved before still counts when it wakes.
func (e *Engine) gateway(s *sandbox) (Gateway, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gateway != nil || e.opt.Gateway == nil || s.gone {
		return s.gateway, nil
	}
	g, err := e.opt.Gateway(Exit{s.owner, s.id, s.rec.Sandbox.Network, s.rec.Traffic, s.secretNames})
	if err == nil {
		s.gateway = g
	}
	return g, err
}

// attach has the network of a place end at the sandbox's gateway, until what it
// returns is called. What programs sent before, waits.
func (e *Engine) attach(s *sandbox, inst driver.Instance) (detach func()) {
	stack, err := e.connect(s, inst)
	s.mu.Lock()
	s.unattached = err
	s.mu.Unlock()
	if err != nil {
		e.log.Debug("a sandbox without a network", "sandbox", s.id, "err", err)
		return func() {}
	}
	return func() { stack.Close() }
}

func (e *Engine) connect(s *sandbox, inst driver.Instance) (*netstack.Stack, error) {
	g, err := e.gateway(s)
	if err != nil {
		return nil, err
	}
	place, ok := driver.As[driver.Networked](inst)
	if !ok || g == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "the runtime has no network")
	}
	file, err := place.Network()
	if err != nil {
		return nil, err
	}
	return netstack.Start(file, g, netstack.Limits{CPU: s.rec.Sandbox.Limits.CPU})
}

// traffic is what went over the network so far, but for what is open now.
func (s *sandbox) traffic() hutch.Traffic {
	s.mu.Lock()
	g, t := s.gateway, s.rec.Traffic
	s.mu.Unlock()
	if g != nil {
		t = g.Traffic()
		t.Open = 0
	}
	return t
}

// disconnect ends the network of a sandbox that is gone.
func (s *sandbox) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gateway != nil {
		s.gateway.Close()
	}
}

// Network implements hutch.Networks.
func (e *Engine) Network(ctx context.Context, id string) (hutch.NetworkState, error) {
	s, err := e.find(ctx, id)
	if err != nil {
		return hutch.NetworkState{}, err
	}
	return e.networkOf(s)
}

func (e *Engine) networkOf(s *sandbox) (hutch.NetworkState, error) {
	g, err := e.gateway(s)
	if err != nil {
		return hutch.NetworkState{}, err
	}
	state := hutch.NetworkState{SandboxID: s.id, Network: s.network()}
	if err := s.noNetwork(); err != nil {
		state.Unavailable = err.Error()
	}
	if g != nil {
		state.Traffic = g.Traffic()
	}
	return state, nil
}

// SetNetwork implements hutch.Networks.
func (e *Engine) SetNetwork(ctx context.Context, id string, n hutch.Network) (hutch.NetworkState, error) {
	n, err := e.networkFor(ctx, n)
	if err != nil {
		return hutch.NetworkState{}, err
	}
	var state hutch.NetworkState
	err = e.hold(ctx, id, func(s *sandbox) error {
		old := s.network().Links
		if err := e.checkLinks(ctx, slices.DeleteFunc(slices.Clone(n.Links), func(l string) bool { return slices.Contains(old, l) })); err != nil {
			return err
		}
		if err := e.setNetwork(ctx, s, n); err != nil {
			return err
		}
		state, err = e.networkOf(s)
		return err
	})
	return state, err
}

// networkFor is what a sandbox of the caller's has that asks for n, if it may.
func (e *Engine) networkFor(ctx context.Context, n hutch.Network) (hutch.Network, error) {
	owner, _ := hutch.OwnerOf(ctx)
	return n.Below(owner.Network, e.opt.Network)
}

// checkLinks refuses links to what the caller does not have. That may come to
// be later: so it is looked again whenever one is used.
func (e *Engine) checkLinks(ctx context.Context, links []string) error {
	for _, text := range links {
		l, err := hutch.ParseNetworkLink(text)
		if err == nil {
			_, err = e.find(ctx, l.Sandbox)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inherited is the network of a copy: what it is asked for with, and else that of
// its first, but for links to what is no more.
func (e *Engine) inherited(ctx context.Context, asked, first hutch.Network) hutch.Network {
	n := asked.Or(first)
	if len(n.Links) == 0 {
		n.Links = slices.DeleteFunc(slices.Clone(first.Links), func(l string) bool { return e.checkLinks(ctx, []string{l}) != nil })
	}
	return n
}

// setNetwork changes what a sandbox may reach, on disk first.
func (e *Engine) setNetwork(ctx context.Context, s *sandbox, n hutch.Network) error {
	g, err := e.gateway(s)
	if err != nil {
		return err
	}
	old := s.network()
	set := func(n hutch.Network) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rec.Sandbox.Network = n
	}
	set(n)
	if err := e.save(ctx, s); err != nil {
		set(old)
		return err
	}
	if g == nil {
		return nil
	}
	return g.Set(n)
}

// noNetwork is why nothing is reached, whatever the rules.
func (s *sandbox) noNetwork() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unattached
}

func (s *sandbox) network() hutch.Network {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Sandbox.Network
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
	g, err := e.gateway(s)
	if err != nil || g == nil {
		return none, err
	}
	return g.Connections(ctx, q), nil
}

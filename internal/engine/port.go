package engine

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/exposure"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// ports are the verbs of servers in sandboxes.
type ports struct{ life *lifecycle }

// Preview implements hutch.Previews.
func (ps ports) Preview(label string) (hutch.Preview, error) {
	if p, ok := ps.life.exposed.Preview(label); ok {
		return p, nil
	}
	return hutch.Preview{}, hutch.ErrNoPreview
}

// LabelOwner returns the owner that the label of a preview is reserved for, on any node of a fleet.
func (ps ports) LabelOwner(label string) (owner string, known bool) {
	return ps.life.exposed.Owner(label)
}

// Expose implements hutch.Ports.
func (ps ports) Expose(ctx context.Context, id string, req hutch.ExposeRequest) (p hutch.Port, err error) {
	if err := req.Check(); err != nil {
		return hutch.Port{}, err
	}
	err = ps.life.hold(ctx, id, func(s *sandbox) (err error) {
		p, err = ps.life.exposed.Expose(s.portHolder(ctx), req)
		return err
	})
	return p, err
}

// Unexpose implements hutch.Ports.
func (ps ports) Unexpose(ctx context.Context, id string, port int) error {
	if err := hutch.CheckPort(port); err != nil {
		return err
	}
	return ps.life.hold(ctx, id, func(s *sandbox) error { return ps.life.exposed.Unexpose(s.portHolder(ctx), port) })
}

// portHolder describes a sandbox to the table of exposed ports. The caller holds the lifecycle lock of the sandbox.
func (s *sandbox) portHolder(ctx context.Context) exposure.Holder {
	return exposure.Holder{
		Owner: s.Owner(), Sandbox: s.ID(), Ports: s.Record().Ports,
		Keep: func(ports []store.Exposure) error {
			return s.Update(ctx, func(r *store.Record) { r.Ports = ports })
		},
	}
}

// Ports implements hutch.Ports.
func (ps ports) Ports(ctx context.Context, id string) ([]hutch.Port, error) {
	s, err := ps.life.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return ps.life.exposed.Ports(s.Record().Ports), nil
}

// ValidatePortToken implements hutch.Ports.
func (ps ports) ValidatePortToken(ctx context.Context, id string, port int, token string) (bool, error) {
	s, err := ps.life.find(ctx, id)
	if err == nil {
		err = hutch.CheckPort(port)
	}
	return err == nil && exposure.ValidToken(s.Record().Ports, port, token), err
}

// LinkPort implements hutch.Ports.
func (ps ports) LinkPort(ctx context.Context, id string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	if err := exposure.CheckLinkTime(lifetime); err != nil {
		return hutch.PortLink{}, err
	}
	s, err := ps.life.find(ctx, id)
	if err == nil {
		err = hutch.CheckPort(port)
	}
	if err != nil {
		return hutch.PortLink{}, err
	}
	x, ok := exposure.Find(s.Record().Ports, port)
	if !ok {
		return hutch.PortLink{}, hutch.Errorf(hutch.NotFound, "port %d of the sandbox %q is not exposed: expose it first", port, id).Naming(hutch.AboutPort, port)
	}
	holder, proof := "", []byte(nil)
	if ps.life.opt.LinkHolder != nil {
		holder, proof = ps.life.opt.LinkHolder(s.Owner())
	}
	return ps.life.exposed.Link(x, lifetime, holder, proof), nil
}

// DialPort implements hutch.Ports.
func (ps ports) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := hutch.CheckPort(port); err != nil {
		return nil, err
	}
	s, agent, err := ps.life.use(ctx, id)
	if err != nil {
		return nil, err
	}
	done := func() {
		s.servers.Add(-1)
		s.EndUse()
	}
	if s.servers.Add(1) > maxServers {
		done()
		return nil, hutch.Errorf(hutch.Exhausted, "the sandbox %q has %d connections with its servers, its limit: close some", id, maxServers)
	}
	c, err := s.dial(ctx, agent, port)
	if err != nil {
		err = ps.dialError(ctx, s, agent, port, err)
		done()
		return nil, err
	}
	return &portConn{c, sync.OnceFunc(done)}, nil
}

const (
	maxServers = 512                    // most connections with the servers of a sandbox
	direct     = 500 * time.Millisecond // time limit of a connection without the agent's help
)

// dial connects to a server in the sandbox. If the runtime supports it, the connection bypasses the agent, which
// saves two copies of each byte.
func (s *sandbox) dial(ctx context.Context, agent *wire.Client, port int) (*wire.PortConn, error) {
	if connector, ok := driver.As[driver.Connector](s.Instance()); ok {
		ctx, cancel := context.WithTimeout(ctx, direct)
		defer cancel()
		if c, err := connector.Connect(ctx, port); err == nil {
			return &wire.PortConn{Conn: c}, nil
		}
	}
	return agent.Dial(ctx, port)
}

// dialError returns the error that explains why a connection could not be made.
func (ps ports) dialError(ctx context.Context, s *sandbox, agent *wire.Client, port int, err error) error {
	if !errors.Is(err, hutch.NotFound) {
		return ps.life.diagnose(ctx, s, agent, err)
	}
	return hutch.Errorf(hutch.Unavailable, "no server answers on port %d of the sandbox %q: start one there, and it is found at once", port, s.ID()).
		Because(err).Naming(hutch.AboutSandbox, s.ID()).Naming(hutch.AboutPort, port)
}

// portConn is a connection that counts as a use of its sandbox.
type portConn struct {
	*wire.PortConn
	done func()
}

func (c *portConn) Close() error {
	defer c.done()
	return c.PortConn.Close()
}

// lookEvery is how often the engine asks which ports have servers, while a client watches the
// ports.
const lookEvery = 500 * time.Millisecond

// WatchPorts implements hutch.Ports.
func (ps ports) WatchPorts(ctx context.Context, id string, out func(hutch.PortEvent) error) error {
	s, agent, err := ps.life.use(ctx, id)
	if err != nil {
		return err
	}
	defer s.EndUse()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for before := []int(nil); ; {
		now, err := agent.Listening(ctx)
		if err != nil {
			return ps.life.diagnose(ctx, s, agent, err)
		}
		if err := ps.reportPorts(s, before, now, out); err != nil {
			return err
		}
		before = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reportPorts reports the ports that opened and closed between two checks.
func (ps ports) reportPorts(s *sandbox, before, now []int, out func(hutch.PortEvent) error) error {
	for _, p := range before {
		if !slices.Contains(now, p) {
			if err := out(hutch.PortEvent{Type: hutch.PortClosed, Port: p}); err != nil {
				return err
			}
		}
	}
	for _, p := range now {
		if slices.Contains(before, p) {
			continue
		}
		ev := hutch.PortEvent{Type: hutch.PortOpened, Port: p}
		if x, ok := exposure.Find(s.Record().Ports, p); ok {
			ev.URL = ps.life.exposed.Port(x).URL
		}
		if err := out(ev); err != nil {
			return err
		}
	}
	return nil
}

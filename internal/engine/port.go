package engine

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// exposures are all exposed ports by the hashes of their labels: to look one up
// takes the same time for a label that is nearly right as for any other.
type exposures struct {
	mu       sync.RWMutex
	by       map[labelKey]*exposure
	reserved reservations
}

// exposure is one exposed port, which never changes: another takes its place.
type exposure struct {
	hutch.Preview
	end context.CancelFunc
}

// Preview implements hutch.Previews.
func (e *Engine) Preview(label string) (hutch.Preview, bool) {
	e.exposed.mu.RLock()
	defer e.exposed.mu.RUnlock()
	if x := e.exposed.by[sha256.Sum256([]byte(label))]; x != nil {
		return x.Preview, true
	}
	return hutch.Preview{}, false
}

// Expose implements hutch.Ports.
func (e *Engine) Expose(ctx context.Context, id string, req hutch.ExposeRequest) (hutch.Port, error) {
	if err := req.Check(); err != nil {
		return hutch.Port{}, err
	}
	if e.opt.PreviewURL == nil {
		return hutch.Port{}, hutch.Errorf(hutch.Unsupported, "nothing here can show a port: run the server (hutch serve), or use hutch forward")
	}
	var x store.Exposure
	err := e.hold(ctx, id, func(s *sandbox) (err error) {
		x, err = e.expose(ctx, s, req)
		return err
	})
	return e.shown(x.Port), err
}

const maxExposed = 100 // ports of a sandbox

// expose puts a port in the place of the one that the request is about.
func (e *Engine) expose(ctx context.Context, s *sandbox, req hutch.ExposeRequest) (store.Exposure, error) {
	all := s.ports()
	old, _ := portOf(all, req.Port)
	if old.Port.Port == 0 && len(all) >= maxExposed {
		return old, hutch.Errorf(hutch.Exhausted, "the sandbox %q has %d exposed ports, its limit: unexpose one", s.id, maxExposed).With("limit", "ports")
	}
	x := changed(old, req)
	x.SandboxID = s.id
	if x == old {
		return old, nil
	}
	if err := e.publish(s.owner, x); err != nil {
		return old, err
	}
	if err := e.setPorts(ctx, s, append(without(all, req.Port), x)); err != nil {
		e.withdraw(s.owner, x)
		e.publish(s.owner, old)
		return old, err
	}
	if old.Port.Port != 0 && old.Label() != x.Label() {
		e.withdraw(s.owner, old)
	}
	return x, nil
}

// changed is what a request makes of an exposure, or of none.
func changed(old store.Exposure, req hutch.ExposeRequest) store.Exposure {
	x := old
	if old.Port.Port == 0 {
		x.CreatedAt, x.Key = time.Now().UTC(), rand.Text()
	}
	x.Port.Port = req.Port
	x.Name = cmp.Or(req.Name, old.Name)
	x.Token = cmp.Or(req.Token, old.Token)
	x.Access = cmp.Or(req.Access, old.Access, hutch.PublicPort)
	if x.Token == "" {
		x.Token = hutch.NewPortToken()
	}
	return x
}

// publish puts an exposure into the table. One of the same label must be of the
// same sandbox, and is cut.
func (e *Engine) publish(owner string, x store.Exposure) error {
	if x.Port.Port == 0 {
		return nil
	}
	life, end := context.WithCancel(e.ctx)
	p := hutch.Preview{Port: e.shown(x.Port), Owner: owner, Key: []byte(x.Key), Life: life}
	key := sha256.Sum256([]byte(x.Label()))
	e.exposed.mu.Lock()
	defer e.exposed.mu.Unlock()
	now := e.exposed.by[key]
	if now != nil && (now.Owner != owner || now.SandboxID != x.SandboxID) || e.exposed.reserved.ownedByAnother(key, owner) {
		end()
		return hutch.Errorf(hutch.Conflict, "the URL of port %d with this token cannot be had: choose another token, or leave it out for a random one", x.Port.Port).With("field", "token")
	}
	if now != nil {
		now.end()
	}
	e.exposed.by[key] = &exposure{p, end}
	return nil
}

// withdraw takes an exposure of an owner from the table and cuts who is connected
// by it. The label stays the owner's for a while.
func (e *Engine) withdraw(owner string, x store.Exposure) {
	e.reserveLabel(owner, x)
	e.cutExposure(x)
}

// cutExposure takes an exposure from the table, and cuts who is connected by it.
func (e *Engine) cutExposure(x store.Exposure) {
	key := sha256.Sum256([]byte(x.Label()))
	e.exposed.mu.Lock()
	defer e.exposed.mu.Unlock()
	if now := e.exposed.by[key]; now != nil {
		now.end()
		delete(e.exposed.by, key)
	}
}

// Unexpose implements hutch.Ports.
func (e *Engine) Unexpose(ctx context.Context, id string, port int) error {
	if err := hutch.CheckPort(port); err != nil {
		return err
	}
	return e.hold(ctx, id, func(s *sandbox) error {
		all := s.ports()
		x, ok := portOf(all, port)
		if !ok {
			return nil
		}
		if err := e.setPorts(ctx, s, without(all, port)); err != nil {
			return err
		}
		e.withdraw(s.owner, x)
		return nil
	})
}

// unexposeAll takes the ports of a sandbox that is gone from the table. Their labels
// were reserved before its record went.
func (e *Engine) unexposeAll(s *sandbox) {
	for _, x := range s.ports() {
		e.cutExposure(x)
	}
}

// Ports implements hutch.Ports.
func (e *Engine) Ports(ctx context.Context, id string) ([]hutch.Port, error) {
	s, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	list := []hutch.Port{}
	for _, x := range s.ports() {
		list = append(list, e.shown(x.Port))
	}
	slices.SortFunc(list, func(a, b hutch.Port) int { return cmp.Compare(a.Port, b.Port) })
	return list, nil
}

// ValidatePortToken implements hutch.Ports.
func (e *Engine) ValidatePortToken(ctx context.Context, id string, port int, token string) (bool, error) {
	s, err := e.find(ctx, id)
	if err == nil {
		err = hutch.CheckPort(port)
	}
	if err != nil {
		return false, err
	}
	x, ok := portOf(s.ports(), port)
	return ok && hmac.Equal([]byte(x.Token), []byte(token)), nil
}

const (
	linkTime    = time.Hour // of a link that names no other lifetime
	maxLinkTime = 30 * 24 * time.Hour
)

// LinkPort implements hutch.Ports.
func (e *Engine) LinkPort(ctx context.Context, id string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	if !(lifetime >= 0 && lifetime.Duration() <= maxLinkTime) {
		return hutch.PortLink{}, hutch.Errorf(hutch.Invalid, "a lifetime of %v s: give seconds, up to %v, or leave it out for %v", lifetime, maxLinkTime.Seconds(), linkTime.Seconds()).With("field", "lifetime")
	}
	s, err := e.find(ctx, id)
	if err == nil {
		err = hutch.CheckPort(port)
	}
	if err != nil {
		return hutch.PortLink{}, err
	}
	x, ok := portOf(s.ports(), port)
	if !ok {
		return hutch.PortLink{}, hutch.Errorf(hutch.NotFound, "port %d of the sandbox %q is not exposed: expose it first", port, id).With("port", port)
	}
	p := hutch.Preview{Port: e.shown(x.Port), Key: []byte(x.Key)}
	end := time.Now().Add(cmp.Or(lifetime.Duration(), linkTime)).Truncate(time.Second).UTC()
	link := p.URL + "/?" + url.Values{hutch.PortLinkParameter: {p.Sign(end)}}.Encode()
	return hutch.PortLink{URL: link, ExpiresAt: end}, nil
}

// DialPort implements hutch.Ports.
func (e *Engine) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := hutch.CheckPort(port); err != nil {
		return nil, err
	}
	s, agent, err := e.use(ctx, id)
	if err != nil {
		return nil, err
	}
	done := func() {
		s.servers.Add(-1)
		e.done(s)
	}
	if s.servers.Add(1) > maxServers {
		done()
		return nil, hutch.Errorf(hutch.Exhausted, "the sandbox %q has %d connections with its servers, its limit: close some", id, maxServers)
	}
	c, err := s.dial(ctx, agent, port)
	if err != nil {
		err = e.undialled(ctx, s, agent, port, err)
		done()
		return nil, err
	}
	return &portConn{c, sync.OnceFunc(done)}, nil
}

const (
	maxServers = 512                    // connections with the servers of a sandbox
	direct     = 500 * time.Millisecond // for a connection without the agent's help
)

// dial connects with a server: past the agent where the runtime can do that,
// as each byte then is copied twice less.
func (s *sandbox) dial(ctx context.Context, agent *wire.Client, port int) (*wire.PortConn, error) {
	s.mu.Lock()
	place, ok := driver.As[driver.Connector](s.inst)
	s.mu.Unlock()
	if ok {
		ctx, cancel := context.WithTimeout(ctx, direct)
		defer cancel()
		if c, err := place.Connect(ctx, port); err == nil {
			return &wire.PortConn{Conn: c}, nil
		}
	}
	return agent.Dial(ctx, port)
}

// undialled says why there is no connection.
func (e *Engine) undialled(ctx context.Context, s *sandbox, agent *wire.Client, port int, err error) error {
	if !errors.Is(err, hutch.NotFound) {
		return e.diagnose(ctx, s, agent, err)
	}
	return hutch.Errorf(hutch.Unavailable, "no server answers on port %d of the sandbox %q: start one there, and it is found at once", port, s.id).
		Because(err).With("sandboxId", s.id).With("port", port)
}

// portConn is a connection that is a use of its sandbox.
type portConn struct {
	*wire.PortConn
	done func()
}

func (c *portConn) Close() error {
	defer c.done()
	return c.PortConn.Close()
}

// lookEvery is how often it is looked who listens, while somebody follows.
const lookEvery = 500 * time.Millisecond

// WatchPorts implements hutch.Ports.
func (e *Engine) WatchPorts(ctx context.Context, id string, out func(hutch.PortEvent) error) error {
	s, agent, err := e.use(ctx, id)
	if err != nil {
		return err
	}
	defer e.done(s)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for before := []int(nil); ; {
		now, err := agent.Listening(ctx)
		if err != nil {
			return e.diagnose(ctx, s, agent, err)
		}
		if err := e.tell(s, before, now, out); err != nil {
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

// tell tells of what has come and gone between two looks.
func (e *Engine) tell(s *sandbox, before, now []int, out func(hutch.PortEvent) error) error {
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
		if x, ok := portOf(s.ports(), p); ok {
			ev.URL = e.shown(x.Port).URL
		}
		if err := out(ev); err != nil {
			return err
		}
	}
	return nil
}

// ports are the sandbox's exposed ports. Nobody changes the list.
func (s *sandbox) ports() []store.Exposure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Ports
}

// setPorts puts a list in place of the sandbox's, on disk too.
func (e *Engine) setPorts(ctx context.Context, s *sandbox, list []store.Exposure) error {
	old := s.ports()
	set := func(list []store.Exposure) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rec.Ports = list
	}
	set(list)
	err := e.save(ctx, s)
	if err != nil {
		set(old)
	}
	return err
}

func portOf(list []store.Exposure, port int) (store.Exposure, bool) {
	for _, x := range list {
		if x.Port.Port == port {
			return x, true
		}
	}
	return store.Exposure{}, false
}

func without(list []store.Exposure, port int) []store.Exposure {
	return slices.DeleteFunc(slices.Clone(list), func(x store.Exposure) bool { return x.Port.Port == port })
}

// shown is a port with its URL, which is where the server is to be found now.
func (e *Engine) shown(p hutch.Port) hutch.Port {
	if p.Port != 0 && e.opt.PreviewURL != nil {
		p.URL = e.opt.PreviewURL(p.Label())
	}
	return p
}

package fakeservice

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"hutch"
)

// Expose returns URLs at which nothing answers.
func (s *Service) Expose(_ context.Context, sandbox string, req hutch.ExposeRequest) (hutch.Port, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLocked(sandbox); err != nil {
		return hutch.Port{}, err
	}
	if err := req.Check(); err != nil {
		return hutch.Port{}, err
	}
	p := hutch.Port{SandboxID: sandbox, Port: req.Port, Name: req.Name, Token: req.Token, Access: cmp.Or(req.Access, hutch.PublicPort), Protocol: req.Protocol, CreatedAt: time.Now().UTC()}
	if p.Protocol == hutch.HTTPPort {
		p.Protocol = ""
	}
	if p.Token == "" {
		p.Token = hutch.NewPortToken()
	}
	p.URL = "http://" + p.Label() + ".localhost"
	s.unexposeLocked(sandbox, req.Port)
	s.ports = append(s.ports, p)
	return p, nil
}

func (s *Service) Unexpose(_ context.Context, sandbox string, port int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.findLocked(sandbox)
	s.unexposeLocked(sandbox, port)
	return err
}

func (s *Service) unexposeLocked(sandbox string, port int) {
	s.ports = slices.DeleteFunc(s.ports, func(p hutch.Port) bool { return p.SandboxID == sandbox && p.Port == port })
}

func (s *Service) Ports(_ context.Context, sandbox string) ([]hutch.Port, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.findLocked(sandbox)
	list := slices.DeleteFunc(append([]hutch.Port{}, s.ports...), func(p hutch.Port) bool { return p.SandboxID != sandbox })
	return list, err
}

func (s *Service) ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error) {
	list, err := s.Ports(ctx, sandbox)
	return slices.ContainsFunc(list, func(p hutch.Port) bool { return p.Port == port && p.Token == token }), err
}

func (s *Service) LinkPort(ctx context.Context, sandbox string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	list, err := s.Ports(ctx, sandbox)
	for _, p := range list {
		if p.Port == port {
			return hutch.PortLink{URL: p.URL + "/?" + hutch.PortLinkParameter + "=1.x", ExpiresAt: time.Now().Add(lifetime.Duration()).UTC()}, nil
		}
	}
	return hutch.PortLink{}, cmp.Or(err, error(hutch.Errorf(hutch.NotFound, "port %d is not exposed", port)))
}

func (s *Service) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return nil, err
	}
	if s.OnDial == nil {
		return nil, hutch.Errorf(hutch.Unavailable, "nothing listens on port %d", port).Naming(hutch.AboutPort, port)
	}
	return s.OnDial(ctx, sandbox, port)
}

// WatchPorts reports one server.
func (s *Service) WatchPorts(ctx context.Context, sandbox string, out func(hutch.PortEvent) error) error {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return err
	}
	if err := out(hutch.PortEvent{Type: hutch.PortOpened, Port: 8000}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

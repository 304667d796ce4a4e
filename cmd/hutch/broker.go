package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/broker"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/secret"
)

// brokerConfig is which of the server's secrets no sandbox is to hold.
type brokerConfig struct {
	anthropic string // the host that the key for Anthropic's API is for; empty gives it to sandboxes
}

func brokerFlags(f *pflag.FlagSet, cfg *brokerConfig) {
	const name = "broker-anthropic"
	f.StringVar(&cfg.anthropic, name, "", "keep ANTHROPIC_API_KEY out of sandboxes, and add it to what they send to `HOST` (default api.anthropic.com)")
	f.Lookup(name).NoOptDefVal = "api.anthropic.com"
}

// openBroker opens what speaks to hosts in the place of sandboxes, by an
// authority that they trust.
func (s *server) openBroker(context.Context) (err error) {
	if host := s.brokering.anthropic; host != "" {
		if err := s.vault.Broker(hutch.AnthropicKey, hutch.Brokering{Hosts: []string{host}}); err != nil {
			return err
		}
	}
	if s.authority, err = broker.OpenAuthority(filepath.Join(s.dir, authorityFile)); err != nil {
		return err
	}
	s.broker = broker.New(broker.Options{Authority: s.authority, Log: s.log})
	s.watched = make(chan struct{})
	return nil
}

// completeExit adds to a sandbox's way out the hosts that it has secrets for, and
// the owner's other sandboxes.
func (s *server) completeExit(x engine.Exit, opt *egress.Options) {
	opt.Brokering = egress.Brokering{
		Broker: s.broker, Answers: s.vault.Answers,
		Credentials: func() []secret.Credential { return s.vault.Brokered(x.Owner, x.Secrets()) },
		Used:        func(host string, u broker.Use) { s.recordUse(x, host, u) },
	}
	opt.Link = func(ctx context.Context, id string, port uint16) (net.Conn, error) {
		return s.engine.DialPort(hutch.WithOwner(ctx, hutch.Owner{ID: x.Owner}), id, int(port))
	}
}

// recordUse puts a use of brokered secrets on record.
func (s *server) recordUse(x engine.Exit, host string, u broker.Use) {
	select {
	case <-s.watched:
	case <-s.life.Done():
		return
	}
	target := fmt.Sprintf("%s %s %d %s", u.Method, host, u.Status, strings.Join(u.Secrets, ","))
	_, end, err := s.observers.Begin(s.life, audit.Operation{Time: u.Began, Owner: x.Owner, Sandbox: x.Sandbox, Verb: audit.Broker, Target: target, Surface: "network"})
	if err != nil {
		s.log.Error("put the use of a secret on record", "sandbox", x.Sandbox, "err", err)
		return
	}
	end(audit.Outcome{Err: u.Err})
}

package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/pflag"

	"hutch"
	"hutch/internal/broker"
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

// openBroker opens the authority that sandboxes trust.
func (s *server) openBroker(context.Context) (err error) {
	if host := s.broker.anthropic; host != "" {
		if err := s.vault.Broker(hutch.AnthropicKey, hutch.Brokering{Hosts: []string{host}}); err != nil {
			return err
		}
	}
	s.authority, err = broker.OpenAuthority(filepath.Join(s.dir, "authority.pem"))
	return err
}

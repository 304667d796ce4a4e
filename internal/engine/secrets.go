package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"

	"hutch"
	"hutch/internal/store"
)

// secretUses gives programs the secrets that their sandboxes and requests have requested.
type secretUses struct {
	ctx   context.Context // done when the engine closes
	value func(owner, name string) (string, error)
	log   *slog.Logger
}

// check refuses a new sandbox that requests unknown secrets, and records the names of its secrets.
func (u secretUses) check(rec *store.Record) error {
	owner := rec.Sandbox.Owner
	env, err := u.requestEnv(owner, rec.Env, rec.Secrets)
	if err != nil {
		return err
	}
	rec.Sandbox.Environment.HasAnthropicCredentials = env[hutch.AnthropicKey] != ""
	return nil
}

// programEnv returns the environment of a program, in addition to the sandbox's variables: the sandbox's secrets,
// overridden by those of the request.
func (u secretUses) programEnv(s *sandbox, env map[string]string, secrets []string) (map[string]string, error) {
	all, err := u.requested(s, env, secrets)
	if err != nil {
		return nil, err
	}
	for _, use := range s.Record().Secrets {
		err := u.add(s.Owner(), use, all)
		if errors.Is(err, hutch.NotFound) {
			u.log.Warn("a sandbox's secret is gone", "sandbox", s.ID(), "secret", use)
		} else if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// requested returns the variables that a request sets, with its secrets. It adds the names of these secrets to the
// record of the sandbox, because a brokered secret lets the whole sandbox reach its hosts, not only one program.
func (u secretUses) requested(s *sandbox, env map[string]string, secrets []string) (map[string]string, error) {
	all, err := u.requestEnv(s.Owner(), env, secrets)
	if err != nil || !s.RequestSecrets(secrets) {
		return all, err
	}
	return all, s.Save(u.ctx)
}

// requestEnv returns the variables that a request sets, with its secrets.
func (u secretUses) requestEnv(owner string, env map[string]string, secrets []string) (map[string]string, error) {
	all := maps.Clone(env)
	if all == nil {
		all = map[string]string{}
	}
	for _, use := range secrets {
		variable, _, err := hutch.ParseSecretUse(use)
		if err != nil {
			return nil, err
		}
		if _, set := all[variable]; set {
			return nil, hutch.SetTwice(variable)
		}
		if err := u.add(owner, use, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// add sets the variable of one secret, unless env already has it.
func (u secretUses) add(owner, use string, env map[string]string) error {
	variable, name, err := hutch.ParseSecretUse(use)
	if err != nil {
		return err
	}
	if _, set := env[variable]; set {
		return nil
	}
	if u.value == nil {
		return hutch.Errorf(hutch.NotFound, "there is no secret %s: this server keeps none", name)
	}
	value, err := u.value(owner, name)
	if err == nil {
		env[variable] = value
	}
	return err
}

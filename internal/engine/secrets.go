package engine

import (
	"errors"
	"maps"
	"slices"

	"hutch"
	"hutch/internal/store"
)

// checkSecrets refuses a sandbox to be whose secrets cannot be had, and notes
// which it has.
func (e *Engine) checkSecrets(rec *store.Record) error {
	owner := rec.Sandbox.Owner
	env, err := e.requestEnv(owner, rec.Env, rec.Secrets)
	if err != nil {
		return err
	}
	rec.Sandbox.Environment.HasAnthropicCredentials = env[hutch.AnthropicKey] != ""
	return nil
}

// programEnv is the environment of a program beyond what its sandbox sets for
// all: the sandbox's secrets, over them what the request says.
func (e *Engine) programEnv(s *sandbox, env map[string]string, secrets []string) (map[string]string, error) {
	all, err := e.lentEnv(s, env, secrets)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	uses := s.rec.Secrets // which never changes
	s.mu.Unlock()
	for _, use := range uses {
		err := e.addSecret(s.owner, use, all)
		if errors.Is(err, hutch.NotFound) {
			e.log.Warn("a sandbox's secret is gone", "sandbox", s.id, "secret", use)
		} else if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lentEnv is what a request about a sandbox sets, with its secrets. Of these it
// is noted that the sandbox has asked for them: one that is brokered opens the
// way to its hosts, and to a sandbox, not to a program.
func (e *Engine) lentEnv(s *sandbox, env map[string]string, secrets []string) (map[string]string, error) {
	all, err := e.requestEnv(s.owner, env, secrets)
	if err != nil || !s.lend(secrets) {
		return all, err
	}
	return all, e.save(e.ctx, s)
}

// lend notes secrets that are asked for, and reports whether that is new.
func (s *sandbox) lend(uses []string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, use := range uses {
		_, name, err := hutch.ParseSecretUse(use)
		if err == nil && !slices.Contains(s.rec.Lent, name) && len(s.rec.Lent) < hutch.MaxSecretUses {
			s.rec.Lent, changed = append(slices.Clip(s.rec.Lent), name), true
		}
	}
	if changed {
		s.noteSecretsLocked()
	}
	return changed
}

// noteSecretsLocked gathers the names of the secrets that a sandbox asked for.
func (s *sandbox) noteSecretsLocked() {
	names := slices.Clone(s.rec.Lent)
	for _, use := range s.rec.Secrets {
		if _, name, err := hutch.ParseSecretUse(use); err == nil {
			names = append(names, name)
		}
	}
	s.secrets.Store(&names)
}

// secretNames are the secrets that a sandbox asked for. It takes no lock.
func (s *sandbox) secretNames() []string {
	if names := s.secrets.Load(); names != nil {
		return *names
	}
	return nil
}

// requestEnv is what a request sets, with its secrets.
func (e *Engine) requestEnv(owner string, env map[string]string, secrets []string) (map[string]string, error) {
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
		if err := e.addSecret(owner, use, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addSecret sets the variable of one secret, unless it is set.
func (e *Engine) addSecret(owner, use string, env map[string]string) error {
	variable, name, err := hutch.ParseSecretUse(use)
	if err != nil {
		return err
	}
	if _, set := env[variable]; set {
		return nil
	}
	if e.opt.Secret == nil {
		return hutch.Errorf(hutch.NotFound, "there is no secret %s: this server keeps none", name)
	}
	value, err := e.opt.Secret(owner, name)
	if err == nil {
		env[variable] = value
	}
	return err
}

package engine

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"hutch"
	"hutch/internal/instance"
	"hutch/internal/kernel"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// The variables of a sandbox can be changed at any time, also while it sleeps. A change is written to the record first,
// together with the changes that the agent and the interpreters have not received yet (EnvNews). A running sandbox
// receives the change at once. Any other sandbox receives it when it runs again: a wake gives the agent the new
// environment anyway, and only interpreters in saved memory need the changes.

// sendEnvTime bounds how long an agent can take to receive changed variables.
const sendEnvTime = 10 * time.Second

// changedEnv returns rec with changed variables.
func changedEnv(rec store.Record, changes map[string]*string) (store.Record, error) {
	var err error
	if rec.Env, err = hutch.ChangeEnv(rec.Env, changes); err != nil {
		return rec, err
	}
	for _, use := range rec.Secrets {
		if variable, _, err := hutch.ParseSecretUse(use); err == nil && changes[variable] != nil {
			return rec, hutch.SetTwice(variable)
		}
	}
	news := maps.Clone(changes)
	for name, value := range rec.EnvNews {
		if _, ok := news[name]; !ok {
			news[name] = value
		}
	}
	rec.EnvNews = news
	return rec, checkNews(rec)
}

// allNews returns changes that set all variables of env, for interpreters whose present variables are not known.
func allNews(env map[string]string) map[string]*string {
	news := map[string]*string{}
	for name, value := range env {
		news[name] = &value
	}
	return news
}

// maxNews limits the unsent changes for interpreters, in bytes as they are sent. An agent that wakes gets them with the
// whole environment in one request, and without the limit a sleeping sandbox could collect any number of changes.
const maxNews = 1 << 20

func checkNews(rec store.Record) error {
	told, err := json.Marshal(newsOf(rec))
	if err != nil {
		return err
	}
	if len(told) > maxNews {
		return hutch.Errorf(hutch.Invalid, "the changes of variables that the programs of the sandbox %q have not been told are too many: they take %d bytes, over the limit of %d. Change fewer at once, and use the sandbox in between, which tells its programs; put large data into a file",
			rec.Sandbox.ID, len(told), maxNews).Naming(hutch.AboutField, "env")
	}
	return nil
}

// newsOf returns the unsent changes for the interpreters in a sandbox's memory.
func newsOf(rec store.Record) map[string]string {
	if len(rec.EnvNews) == 0 {
		return nil
	}
	return kernel.Environ(rec.EnvNews)
}

// sendEnv sends a running sandbox its changed variables. Any other sandbox gets them when it runs again. The caller
// holds the lifecycle lock.
func (e *lifecycle) sendEnv(ctx context.Context, s *sandbox) error {
	rec := s.Record()
	_, agent := s.Attached()
	if agent == nil || len(rec.EnvNews) == 0 {
		return nil
	}
	if err := e.adoptEnv(ctx, rec, agent); err != nil {
		return hutch.Errorf(hutch.Unavailable, "the variables of the sandbox %q are kept, but the sandbox does not answer, so its programs get them when it next wakes: try again", s.ID()).Naming(hutch.AboutSandbox, s.ID()).Because(err)
	}
	return s.markEnvSent(ctx)
}

// markEnvSent records that a sandbox has received its variables.
func (s *sandbox) markEnvSent(ctx context.Context) error {
	if len(s.Record().EnvNews) == 0 {
		return nil
	}
	return s.Update(ctx, func(r *store.Record) { r.EnvNews = nil })
}

// adoptEnv gives an agent the environment of its sandbox.
func (e *lifecycle) adoptEnv(ctx context.Context, rec store.Record, agent *wire.Client) error {
	ctx, cancel := context.WithTimeout(ctx, sendEnvTime)
	defer cancel()
	root, err := e.instances.Root(ctx, instance.KindOf(rec.Sandbox))
	if err != nil {
		return err
	}
	env := append(root.Env[:len(root.Env):len(root.Env)], instance.Environ(rec.Env)...)
	return agent.Adopt(ctx, wire.Identity{Hostname: rec.Sandbox.ID, Env: env, Tell: newsOf(rec)})
}

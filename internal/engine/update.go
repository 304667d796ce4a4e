package engine

import (
	"context"
	"maps"
	"time"

	"hutch"
	"hutch/internal/store"
)

// Update implements hutch.Service.
func (e *Engine) Update(ctx context.Context, id string, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	if err := req.Check(); err != nil {
		return hutch.Sandbox{}, err
	}
	if err := e.hold(ctx, id, func(s *sandbox) error { return e.update(ctx, s, req) }); err != nil {
		return hutch.Sandbox{}, err
	}
	return e.Sandbox(ctx, id)
}

// update changes a sandbox. It also resets the idle time, so that no change puts the sandbox to sleep at once. The
// caller holds the lifecycle lock.
func (e *lifecycle) update(ctx context.Context, s *sandbox, req hutch.UpdateRequest) error {
	now := time.Now()
	change := func(r *store.Record) { e.applyUpdate(&r.Sandbox, req, now) }
	if len(req.Env) == 0 {
		return s.Update(ctx, change)
	}
	env, err := changedEnv(s.Record(), req.Env)
	if err != nil {
		return err
	}
	err = s.Update(ctx, func(r *store.Record) {
		change(r)
		r.Env, r.EnvNews = env.Env, env.EnvNews
	})
	if err != nil {
		return err
	}
	return e.sendEnv(ctx, s)
}

func (e *lifecycle) applyUpdate(v *hutch.Sandbox, req hutch.UpdateRequest, now time.Time) {
	v.LastUsedAt = now
	if req.KeepAlive != nil {
		v.KeepAlive = *req.KeepAlive
	}
	if req.OnIdle != "" {
		v.OnIdle = req.OnIdle
	}
	if req.SleepAfter != nil {
		if v.SleepAfter = *req.SleepAfter; v.SleepAfter == 0 {
			v.SleepAfter = hutch.InSeconds(e.opt.SleepAfter)
		}
	}
	if req.Timeout != nil {
		v.ExpiresAt = nil
		if *req.Timeout > 0 {
			end := now.Add(req.Timeout.Duration())
			v.ExpiresAt = &end
		}
	}
	if req.Labels != nil {
		v.Labels = maps.Clone(req.Labels)
	}
}

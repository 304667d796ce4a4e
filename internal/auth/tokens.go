package auth

import (
	"context"
	"slices"
	"time"

	"hutch"
	"hutch/internal/store"
)

// most is the highest number of tokens, including recently ended ones.
const most = 10_000

// CreateToken implements hutch.Tokens.
func (r *Registry) CreateToken(ctx context.Context, req hutch.TokenRequest) (hutch.MintedToken, error) {
	if err := req.Check(); err != nil {
		return hutch.MintedToken{}, err
	}
	now := time.Now().UTC()
	secret, sum := newSecret()
	rec := record{Token: newToken(req, now), Hash: sum[:]}
	err := r.stored.Change(ctx, func(d *store.Draft) error {
		r.mu.RLock()
		defer r.mu.RUnlock()
		if e := r.findLocked(req.Name, now); e != nil || req.Name == localID {
			return hutch.Errorf(hutch.Conflict, "there is a token %q: choose another name, or rotate or revoke that one", req.Name).Naming(hutch.AboutField, "name")
		}
		if len(r.byID) >= most {
			return hutch.Errorf(hutch.Exhausted, "there are %d tokens, which is the most: revoke some; they are forgotten after 90 days", most).With("limit", "tokens")
		}
		return put(d, rec)
	})
	if err != nil {
		return hutch.MintedToken{}, err
	}
	return hutch.MintedToken{Token: r.show(rec), Secret: secret}, nil
}

func newToken(req hutch.TokenRequest, now time.Time) hutch.Token {
	t := hutch.Token{ID: hutch.NewID("tk"), Name: req.Name, Limits: req.Limits, Registries: req.Registries, CreatedAt: now}
	for _, s := range hutch.Scopes {
		if slices.Contains(req.Scopes, s) || len(req.Scopes) == 0 && s != hutch.ScopeAdmin {
			t.Scopes = append(t.Scopes, s)
		}
	}
	if req.Network != nil {
		n, _ := req.Network.Canonical() // Check has accepted it
		t.Network = &n
	}
	if req.Lifetime > 0 {
		at := now.Add(req.Lifetime.Duration())
		t.ExpiresAt = &at
	}
	return t
}

// findLocked returns the token with an id or, among live tokens, with a name.
func (r *Registry) findLocked(token string, now time.Time) *entry {
	if e := r.byID[token]; e != nil {
		return e
	}
	for _, e := range r.byID {
		if e.Name == token && e.Live(now) {
			return e
		}
	}
	return nil
}

func (r *Registry) lookLocked(token string) (*entry, error) {
	switch e := r.findLocked(token, time.Now()); {
	case e != nil:
		return e, nil
	case token == localID:
		return nil, hutch.Errorf(hutch.Unsupported, "the token %q comes from the environment or the data folder of the server: change it there", token)
	}
	return nil, hutch.Errorf(hutch.NotFound, "there is no token %.80q: list the tokens", token).With("token", token)
}

// Token implements hutch.Tokens.
func (r *Registry) Token(_ context.Context, token string) (hutch.Token, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, err := r.lookLocked(token)
	if err != nil {
		return hutch.Token{}, err
	}
	return r.show(e.record), nil
}

// Tokens implements hutch.Tokens.
func (r *Registry) Tokens(context.Context) ([]hutch.Token, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := []hutch.Token{}
	for _, e := range r.sortedLocked() {
		list = append(list, r.show(e.record))
	}
	return list, nil
}

// RotateToken implements hutch.Tokens.
func (r *Registry) RotateToken(ctx context.Context, token string) (hutch.MintedToken, error) {
	secret, sum := newSecret()
	rec, err := r.change(ctx, token, func(rec *record) error {
		if !rec.Live(time.Now()) {
			return hutch.Errorf(hutch.Conflict, "the token %q has ended: create a new one", rec.Name)
		}
		rec.Hash = sum[:]
		return nil
	})
	if err != nil {
		return hutch.MintedToken{}, err
	}
	return hutch.MintedToken{Token: r.show(rec), Secret: secret}, nil
}

// RevokeToken implements hutch.Tokens.
func (r *Registry) RevokeToken(ctx context.Context, token string) (hutch.Token, error) {
	now := time.Now().UTC()
	rec, err := r.change(ctx, token, func(rec *record) error {
		if rec.RevokedAt == nil {
			rec.RevokedAt = &now
		}
		return nil
	})
	if err == nil {
		return r.show(rec), nil
	}
	// The token ends here even if that cannot be stored. The caller gets the error and can try again.
	r.mu.Lock()
	defer r.mu.Unlock()
	e, unknown := r.lookLocked(token)
	if unknown != nil {
		return hutch.Token{}, err // not "not found", because another server may know the token
	}
	if e.RevokedAt == nil {
		r.endLocked(e, errRevoked)
		e.RevokedAt = &now
	}
	return r.show(e.record), err
}

// change changes one token with the function do.
func (r *Registry) change(ctx context.Context, token string, do func(*record) error) (rec record, err error) {
	err = r.stored.Change(ctx, func(d *store.Draft) error {
		r.mu.RLock()
		defer r.mu.RUnlock()
		e, err := r.lookLocked(token)
		if err != nil {
			return err
		}
		rec = e.record
		if err := do(&rec); err != nil {
			return err
		}
		return put(d, rec)
	})
	return rec, err
}

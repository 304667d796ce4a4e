package auth

import (
	"cmp"
	"context"
	"slices"
	"time"

	"hutch"
)

// Principal is the caller of a request. It is shared and must not be modified.
type Principal struct {
	ID     string // of the token
	Name   string
	Owner  string // owner of the sandboxes it creates; empty for the server's own
	Scopes []hutch.Scope
	Limits hutch.TokenLimits // hutch.Unlimited for no limit, never 0
	// Network is the most that its sandboxes can reach; nil for the server's.
	Network *hutch.Network
	// Metadata is the URL that tells a client where to get more scopes (RFC 9728); empty if there is no such place.
	Metadata string

	expires time.Time
	life    context.Context
}

// Has reports whether the principal has one of the scopes.
func (p *Principal) Has(any ...hutch.Scope) bool {
	return slices.ContainsFunc(any, func(s hutch.Scope) bool { return slices.Contains(p.Scopes, s) })
}

// Lack returns the error for a verb that needs one of some scopes, when p has none of them. Its data become a
// challenge (RFC 6750).
func (p *Principal) Lack(verb string, any []hutch.Scope) error {
	err := hutch.Errorf(hutch.Denied, "the token %q has the scopes %q, and %s needs one of %q: ask for a token that has it", p.Name, p.Scopes, verb, any).
		With("needs", any)
	if p.Metadata == "" {
		return err.With("scope", string(any[0]))
	}
	return err.With("scope", scopePrefix+string(any[0])).With("resourceMetadata", p.Metadata)
}

// Self returns the principal as an owner of sandboxes.
func (p *Principal) Self() hutch.Owner {
	return hutch.Owner{ID: p.Owner, MaxSandboxes: max(0, p.Limits.Sandboxes), Network: p.Network}
}

// Hold returns a context that ends with the principal's token; its cause then has a message for people.
func (p *Principal) Hold(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	life := cmp.Or(p.life, context.Background())
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	if p.expires.IsZero() {
		return ctx, func() { stop(); cancel(context.Canceled) }
	}
	ctx, done := context.WithDeadlineCause(ctx, p.expires, errExpired)
	return ctx, func() { stop(); done(); cancel(context.Canceled) }
}

var (
	errExpired = hutch.Errorf(hutch.Denied, "the token expired while this was under way: ask for a new one")
	errRevoked = hutch.Errorf(hutch.Denied, "the token was revoked while this was under way: ask for a new one")
	errClosing = hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
)

type principalKey struct{}

// With returns a context for calls on behalf of p, and of p as an owner.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(hutch.WithOwner(ctx, p.Self()), principalKey{}, p)
}

// Unmetered returns a context for work that the server does on behalf of ctx's principal, such as cleaning up, which
// no limit should stop.
func Unmetered(ctx context.Context) context.Context {
	p := From(ctx)
	if p == nil {
		return ctx
	}
	free := *p
	free.Limits = None
	return With(ctx, &free)
}

// From returns the principal of ctx, or nil.
func From(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

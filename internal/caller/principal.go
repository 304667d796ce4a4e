package caller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"hutch"
)

// Principal is the owner and the rights of a token. It is shared and must not be modified.
type Principal struct {
	ID     string // of the token
	Name   string
	Owner  string // owner of the sandboxes it creates; empty for the server's own
	Scopes []hutch.Scope
	Limits hutch.TokenLimits // hutch.Unlimited for no limit, never 0
	// Network is the most that the principal's sandboxes can reach; nil for the server's limit.
	Network *hutch.Network
	// Registries are the server's registries that the principal can use; empty for all of the server's.
	Registries []string
	// Metadata is the URL that tells a client where to get more scopes (RFC 9728); empty if there is none.
	Metadata string

	Expires time.Time       // zero for never
	Life    context.Context // done when the token ends before Expires; nil if it cannot
}

// Unlimited are the limits of a principal without limits.
var Unlimited = hutch.TokenLimits{Requests: hutch.Unlimited, Operations: hutch.Unlimited, Sandboxes: hutch.Unlimited}

// ScopePrefix marks our scopes among others in the tokens of an issuer.
const ScopePrefix = "hutch:"

// Has reports whether the principal has one of the scopes.
func (p *Principal) Has(scopes ...hutch.Scope) bool {
	return slices.ContainsFunc(scopes, func(s hutch.Scope) bool { return slices.Contains(p.Scopes, s) })
}

// Lack returns the error for a principal that has none of scopes, although the verb needs one of them. The data of the
// error become a challenge (RFC 6750).
func (p *Principal) Lack(verb string, scopes []hutch.Scope) error {
	err := hutch.Errorf(hutch.Denied, "the token %q has %s, and %s needs the scope %s: ask for a token that has it", p.Name, scopesOf(p.Scopes), verb, hutch.JoinNames(scopes, "or")).
		With("needs", scopes)
	if p.Metadata == "" {
		return err.With("scope", string(scopes[0]))
	}
	return err.With("scope", ScopePrefix+string(scopes[0])).With("resourceMetadata", p.Metadata)
}

// scopesOf says which scopes a token has.
func scopesOf(list []hutch.Scope) string {
	switch len(list) {
	case 0:
		return "no scope"
	case 1:
		return "the scope " + string(list[0])
	default:
		return "the scopes " + hutch.JoinNames(list, "and")
	}
}

// Self returns the principal as an owner of sandboxes.
func (p *Principal) Self() Owner {
	return Owner{ID: p.Owner, MaxSandboxes: max(0, p.Limits.Sandboxes), Network: p.Network, Registries: p.Registries}
}

// Hold returns a context that also ends when the principal's token ends. The cause is then an error with a message for
// people.
func (p *Principal) Hold(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := Until(ctx, cmp.Or(p.Life, context.Background()))
	if p.Expires.IsZero() {
		return ctx, end
	}
	ctx, done := context.WithDeadlineCause(ctx, p.Expires, errExpired)
	return ctx, func() { done(); end() }
}

// Until returns a context that also ends when life ends, with the cause of life. If life is nil, Until returns ctx. The
// caller calls end when it does not need the context any more.
func Until(ctx, life context.Context) (_ context.Context, end context.CancelFunc) {
	if life == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

var errExpired = hutch.Errorf(hutch.Denied, "the token expired while this was under way: ask for a new one")

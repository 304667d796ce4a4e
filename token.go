package hutch

import (
	"context"
	"slices"
	"time"
)

// Scope is a part of what a token may do. None implies another.
type Scope string

const (
	// ScopeRead is to see: sandboxes, processes, output, files.
	ScopeRead Scope = "read"
	// ScopeExec is to make, share and destroy sandboxes, and to run things in
	// them.
	ScopeExec Scope = "exec"
	// ScopeFiles is to read and to change files.
	ScopeFiles Scope = "files"
	// ScopePorts is to show the servers in sandboxes to others.
	ScopePorts Scope = "ports"
	// ScopeAdmin is to manage the server: tokens above all.
	ScopeAdmin Scope = "admin"
)

// Scopes are all that there are.
var Scopes = []Scope{ScopeRead, ScopeExec, ScopeFiles, ScopePorts, ScopeAdmin}

// Unlimited, as a limit of a token, is none.
const Unlimited = -1

// TokenLimits bound what one token may take. 0 is the server's default.
type TokenLimits struct {
	Requests   int `json:"requestsPerMinute,omitempty"` // HTTP requests; default 100
	Operations int `json:"operationsPerHour,omitempty"` // calls about sandboxes; default 1000
	Sandboxes  int `json:"sandboxes,omitempty"`         // at once; default 10
}

// Token is what is known of a token, which is not the token itself.
type Token struct {
	ID         string      `json:"tokenId"`
	Name       string      `json:"name"` // like no other that is live
	Scopes     []Scope     `json:"scopes"`
	Limits     TokenLimits `json:"limits"`
	Network    *Network    `json:"network,omitempty"` // the most that its sandboxes may reach; none is the server's
	CreatedAt  time.Time   `json:"createdAt"`
	ExpiresAt  *time.Time  `json:"expiresAt,omitempty"`
	LastUsedAt *time.Time  `json:"lastUsedAt,omitempty"` // to ten minutes
	RevokedAt  *time.Time  `json:"revokedAt,omitempty"`
}

// Live reports whether the token opens anything at a time.
func (t Token) Live(now time.Time) bool {
	return t.RevokedAt == nil && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name   string      `json:"name"`             // by the rule of ids
	Scopes []Scope     `json:"scopes,omitempty"` // default: all but admin
	Limits TokenLimits `json:"limits,omitzero"`
	// Network is the most that sandboxes of the token may reach, by whatever
	// is said of them; without it, and the scope admin, it is the server's
	// default.
	Network *Network `json:"network,omitempty"`
	// Lifetime ends the token so many seconds from now; 0 is never.
	Lifetime Seconds `json:"lifetime,omitempty"`
}

// Check refuses what no token can be.
func (r TokenRequest) Check() error {
	if err := CheckID(r.Name); err != nil {
		return Errorf(Invalid, "the name of the token: %v", err).Naming(AboutField, "name")
	}
	for _, s := range r.Scopes {
		if !slices.Contains(Scopes, s) {
			return Errorf(Invalid, "there is no scope %.40q: use %q", s, Scopes).Naming(AboutField, "scopes")
		}
	}
	if min(r.Limits.Requests, r.Limits.Operations, r.Limits.Sandboxes) < Unlimited {
		return Errorf(Invalid, "a limit is below %d: give a number, 0 for the default or %d for none", Unlimited, Unlimited).Naming(AboutField, "limits")
	}
	if err := r.checkNetwork(); err != nil {
		return err
	}
	const century = 100 * 365 * 24 * 3600
	if !(0 <= r.Lifetime && r.Lifetime <= century) {
		return Errorf(Invalid, "a lifetime of %v s: give seconds from now, or 0 for ever", r.Lifetime).Naming(AboutField, "lifetime")
	}
	return nil
}

func (r TokenRequest) checkNetwork() error {
	switch {
	case r.Network == nil:
		return nil
	case slices.Contains(r.Scopes, ScopeAdmin):
		return Errorf(Invalid, "a token with the scope admin can have no network of its own, as it may make tokens without one: leave out one of them").Naming(AboutField, "network")
	case len(r.Network.Links) > 0:
		return Errorf(Invalid, "the network of a token has no links: each sandbox has its own").Naming(AboutField, "network.links")
	}
	_, err := r.Network.Canonical()
	return err
}

// MintedToken is a token with its secret, which is told this once: the server
// keeps a hash.
type MintedToken struct {
	Token
	Secret string `json:"token"`
}

// Tokens is the administration of tokens. It needs the scope admin. A token is
// named by its id or, while it is live, its name.
type Tokens interface {
	// CreateToken makes a token. A name that a live one has is Conflict.
	CreateToken(ctx context.Context, req TokenRequest) (MintedToken, error)

	// Token returns one token.
	Token(ctx context.Context, token string) (Token, error)

	// Tokens lists them, oldest first; those that ended are kept for a while.
	Tokens(ctx context.Context) ([]Token, error)

	// RotateToken gives a live token a new secret and ends the old one.
	RotateToken(ctx context.Context, token string) (MintedToken, error)

	// RevokeToken ends a token and what is under way for it. Idempotent.
	RevokeToken(ctx context.Context, token string) (Token, error)
}

// Access is what one may do with another's sandbox.
type Access string

const (
	ReadAccess  Access = "read"  // see it, its processes, output and files
	WriteAccess Access = "write" // all but to destroy or share it
)

// Grant lets a token use another's sandbox, within the token's own scopes.
type Grant struct {
	SandboxID string    `json:"sandboxId"`
	Owner     string    `json:"owner,omitempty"`
	Token     string    `json:"tokenId"`
	TokenName string    `json:"tokenName"`
	Access    Access    `json:"access"`
	CreatedAt time.Time `json:"createdAt"`
}

// Sharing lets other tokens use a sandbox of the caller's. A grant ends with
// the sandbox and with the token. Whoever has a sandbox of the same id uses
// that one.
type Sharing interface {
	// Share grants access, or changes what was granted.
	Share(ctx context.Context, sandbox, token string, access Access) (Grant, error)

	// Unshare takes back what was granted. Idempotent.
	Unshare(ctx context.Context, sandbox, token string) error

	// Grants lists what was granted on a sandbox, oldest first.
	Grants(ctx context.Context, sandbox string) ([]Grant, error)
}

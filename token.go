package hutch

import (
	"context"
	"slices"
	"time"
)

// Scope is a kind of call that a token can make. No scope implies another.
type Scope string

const (
	// ScopeRead is for looking: sandboxes, processes, output, files.
	ScopeRead Scope = "read"
	// ScopeExec is for creating, sharing and destroying sandboxes, and running programs in them.
	ScopeExec Scope = "exec"
	// ScopeFiles is for reading and changing files.
	ScopeFiles Scope = "files"
	// ScopePorts allows showing the servers in sandboxes to others.
	ScopePorts Scope = "ports"
	// ScopeAdmin is for managing the server, above all its tokens.
	ScopeAdmin Scope = "admin"
)

// Scopes lists all scopes.
var Scopes = []Scope{ScopeRead, ScopeExec, ScopeFiles, ScopePorts, ScopeAdmin}

// Unlimited, as a limit of a token, means no limit.
const Unlimited = -1

// TokenLimits limit the use of one token. 0 means the server's default.
type TokenLimits struct {
	Requests   int `json:"requestsPerMinute,omitempty"` // HTTP requests; default 100
	Operations int `json:"operationsPerHour,omitempty"` // calls about sandboxes; default 1000
	Sandboxes  int `json:"sandboxes,omitempty"`         // sandboxes at once; default 10
}

// Token is the record of a token, without its secret.
type Token struct {
	ID         string      `json:"tokenId"`
	Name       string      `json:"name"` // unique among live tokens
	Scopes     []Scope     `json:"scopes"`
	Limits     TokenLimits `json:"limits"`
	Network    *Network    `json:"network,omitempty"`    // the most that its sandboxes can reach; nil means the server's
	Registries []string    `json:"registries,omitempty"` // registries of its images, among the server's; none means all of these
	CreatedAt  time.Time   `json:"createdAt"`
	ExpiresAt  *time.Time  `json:"expiresAt,omitempty"`
	LastUsedAt *time.Time  `json:"lastUsedAt,omitempty"` // accurate to ten minutes
	RevokedAt  *time.Time  `json:"revokedAt,omitempty"`
}

// Live reports whether the token is valid at that time.
func (t Token) Live(now time.Time) bool {
	return t.RevokedAt == nil && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name   string      `json:"name"`             // in the form of an id
	Scopes []Scope     `json:"scopes,omitempty"` // default: all but admin
	Limits TokenLimits `json:"limits,omitzero"`
	// Network is the most that the token's sandboxes can reach, whatever their own rules are. If it is nil, and the
	// token lacks the scope admin, it is the server's default.
	Network *Network `json:"network,omitempty"`
	// Registries are the registries that the token can pull images from and push them to, such as ghcr.io or
	// *.example.com, among those of the server. If it is empty, the token can use all registries of the server.
	Registries []string `json:"registries,omitempty"`
	// Lifetime ends the token after this many seconds; 0 means never.
	Lifetime Seconds `json:"lifetime,omitempty"`
}

// Check refuses an invalid request.
func (r TokenRequest) Check() error {
	if err := CheckID(r.Name); err != nil {
		return Errorf(Invalid, "the name of the token: %v", err).Naming(AboutField, "name")
	}
	for _, s := range r.Scopes {
		if !slices.Contains(Scopes, s) {
			return Errorf(Invalid, "there is no scope %.40q: use one or more of %s", s, JoinNames(Scopes, "and")).Naming(AboutField, "scopes")
		}
	}
	if min(r.Limits.Requests, r.Limits.Operations, r.Limits.Sandboxes) < Unlimited {
		return Errorf(Invalid, "a limit is below %d: give a number, 0 for the default or %d for none", Unlimited, Unlimited).Naming(AboutField, "limits")
	}
	if err := r.checkNetwork(); err != nil {
		return err
	}
	if err := r.checkRegistries(); err != nil {
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
	case len(r.Network.Block) > 0:
		return Errorf(Invalid, "a token's network has no block: give the most that its sandboxes can reach in allow, and block addresses in the network of a sandbox").Naming(AboutField, "network.block")
	case len(r.Network.Links) > 0:
		return Errorf(Invalid, "the network of a token has no links: each sandbox has its own").Naming(AboutField, "network.links")
	}
	if err := r.Network.refuseHidden("a token"); err != nil {
		return err
	}
	_, err := r.Network.Canonical()
	return err
}

// MaxRegistries is how many registries a token can name.
const MaxRegistries = 100

var registryName = pattern(`^(\*\.)?[a-z0-9]+([.-]+[a-z0-9]+)*(:[0-9]{1,5})?$|^\[[0-9a-f:]+\](:[0-9]{1,5})?$`)

func (r TokenRequest) checkRegistries() error {
	switch {
	case len(r.Registries) == 0:
		return nil
	case slices.Contains(r.Scopes, ScopeAdmin):
		return Errorf(Invalid, "a token with the scope admin can have no registries of its own, as it may make tokens without them: leave out one of them").Naming(AboutField, "registries")
	case len(r.Registries) > MaxRegistries:
		return Errorf(Invalid, "there are %d registries: name at most %d, or several at once as *.example.com", len(r.Registries), MaxRegistries).Naming(AboutField, "registries")
	}
	for _, name := range r.Registries {
		if len(name) > 260 || !registryName().MatchString(name) {
			return Errorf(Invalid, "%.100q is not the name of a registry: write a host in lower case, such as ghcr.io, *.example.com or registry.example.com:5000", name).Naming(AboutField, "registries")
		}
	}
	return nil
}

// MintedToken is a token with its secret. The secret is shown only this once: the server keeps a hash.
type MintedToken struct {
	Token
	Secret string `json:"token"`
}

// Tokens is the administration of tokens. It needs the scope admin. A token is named by its id or, while it is valid,
// by its name.
type Tokens interface {
	// CreateToken creates a token. A name that a live token has is Conflict.
	CreateToken(ctx context.Context, req TokenRequest) (MintedToken, error)

	// Token returns one token.
	Token(ctx context.Context, token string) (Token, error)

	// Tokens lists the tokens, oldest first; ended ones are kept for a while.
	Tokens(ctx context.Context) ([]Token, error)

	// RotateToken gives a live token a new secret and ends the old one.
	RotateToken(ctx context.Context, token string) (MintedToken, error)

	// RevokeToken ends a token and its open calls. It is idempotent.
	RevokeToken(ctx context.Context, token string) (Token, error)
}

// Access is what a grant allows on another owner's sandbox.
type Access string

const (
	ReadAccess  Access = "read"  // see it, its processes, output and files
	WriteAccess Access = "write" // everything except destroying and sharing it
)

// Grant lets a token use another owner's sandbox, within the token's own scopes.
type Grant struct {
	SandboxID string    `json:"sandboxId"`
	Owner     string    `json:"owner,omitempty"`
	Token     string    `json:"tokenId"`
	TokenName string    `json:"tokenName"`
	Access    Access    `json:"access"`
	CreatedAt time.Time `json:"createdAt"`
}

// Sharing lets other tokens use a sandbox of the caller's. A grant ends with the sandbox and with the token. If the
// grantee has a sandbox of the same id, the id means the grantee's own sandbox.
type Sharing interface {
	// Share grants access, or changes a grant.
	Share(ctx context.Context, sandbox, token string, access Access) (Grant, error)

	// Unshare removes a grant. It is idempotent.
	Unshare(ctx context.Context, sandbox, token string) error

	// Grants lists the grants on a sandbox, oldest first.
	Grants(ctx context.Context, sandbox string) ([]Grant, error)
}

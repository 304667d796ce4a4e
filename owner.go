package hutch

import "context"

// Owner is the caller on whose behalf a call is made. Each owner has its own sandboxes: the same id of two owners is
// two sandboxes, and neither owner learns of the other's.
type Owner struct {
	ID           string // empty for the server itself
	MaxSandboxes int    // live sandboxes; 0 means only the server's limit
	// Network is the most that the owner's sandboxes can reach, in canonical form; nil means no ceiling.
	Network *Network
}

type ownerKey struct{}

// WithOwner returns a context for calls on behalf of o. Calls without an owner belong to the server itself, and list
// the sandboxes of all owners.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// WithoutOwner returns a context for calls of the server itself.
func WithoutOwner(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, nil)
}

// OwnerOf returns the owner that ctx names, and whether it names one.
func OwnerOf(ctx context.Context) (Owner, bool) {
	o, ok := ctx.Value(ownerKey{}).(Owner)
	return o, ok
}

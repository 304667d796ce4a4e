package hutch

import "context"

// Owner is on whose behalf a call is made. Each has sandboxes of its own: the
// same id of two owners is two sandboxes, and neither learns of the other's.
type Owner struct {
	ID           string // empty for the server's own
	MaxSandboxes int    // at once; 0 for no limit but the server's
	// Network is the most that its sandboxes may reach, canonical; nil for no
	// ceiling.
	Network *Network
}

type ownerKey struct{}

// WithOwner returns a context for calls on behalf of o. Calls without an owner
// are the server's own, and list the sandboxes of all.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// WithoutOwner returns a context for calls that are the server's own, on behalf
// of nobody.
func WithoutOwner(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, nil)
}

// OwnerOf returns the owner on whose behalf ctx is, and whether it names one.
func OwnerOf(ctx context.Context) (Owner, bool) {
	o, ok := ctx.Value(ownerKey{}).(Owner)
	return o, ok
}

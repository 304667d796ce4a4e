// Package caller describes on whose behalf a call is made, as one value in the call's context.
//
// The guard sets it once for each request. A surface adds its name, policy changes the owner when a sandbox is shared,
// and a tracer adds its span. Policy, audit, quota, the redactor, the engine and the surfaces read it. A context
// without a caller belongs to the server itself.
package caller

import (
	"context"

	"hutch"
	"hutch/internal/membudget"
)

// Caller describes who makes a call, where the call comes from, and which account pays for its memory. The zero value
// is the server itself.
type Caller struct {
	// Principal is the principal of the call's token; nil for a call without a token.
	Principal *Principal
	// Owner has the sandboxes that the call can see: the principal's own, or those of an owner that shares a sandbox
	// with the principal. nil is the server, which sees those of every owner.
	Owner *Owner
	// OwnOnly hides sandboxes that others share with the principal from the call.
	OwnOnly bool
	Origin  Origin
	// Trace is the traceparent of the call, as W3C Trace Context has it, or empty.
	Trace string
	// Budget is the memory that the server holds for the request; nil for no limit.
	Budget *membudget.Account
	// Pulls, if not nil, receives the state of a layer whenever it changes while the call pulls an image.
	Pulls func(hutch.Transfer) error
}

// Owner has sandboxes of its own: the same id of two owners is two sandboxes, and neither owner learns of the other's.
type Owner struct {
	ID           string // empty for the server itself
	MaxSandboxes int    // live sandboxes; 0 means only the server's limit
	// Network is the most that the owner's sandboxes can reach, in canonical form; nil means no ceiling.
	Network *hutch.Network
	// Registries are the server's registries that the owner can use; empty for all of the server's.
	Registries []string
}

// Origin is where a call comes from.
type Origin struct {
	Surface string // "mcp", "rest", "conversation"; "console" for a browser that calls REST
	Remote  string // address of the client
	Request string // id of the HTTP request, which is unique
	// ClientRequest is the id that the client gave the request.
	ClientRequest string
}

type key struct{}

// With returns a context for calls of c.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the caller of ctx.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(key{}).(Caller)
	return c
}

// As returns a context for calls of p about its own sandboxes.
func As(ctx context.Context, p *Principal) context.Context {
	c, self := From(ctx), p.Self()
	c.Principal, c.Owner = p, &self
	return With(ctx, c)
}

// Unmetered returns a context for work that the server does on behalf of ctx's principal, such as cleaning up, which
// no limit should stop.
func Unmetered(ctx context.Context) context.Context {
	p := From(ctx).Principal
	if p == nil {
		return ctx
	}
	free := *p
	free.Limits = Unlimited
	return As(ctx, &free)
}

// WithOwner returns a context for calls about the sandboxes of o.
func WithOwner(ctx context.Context, o Owner) context.Context {
	c := From(ctx)
	c.Owner = &o
	return With(ctx, c)
}

// OwnOnly returns a context for calls that find only the sandboxes of their owner.
func OwnOnly(ctx context.Context) context.Context {
	c := From(ctx)
	c.OwnOnly = true
	return With(ctx, c)
}

// WithoutOwner returns a context for calls about the sandboxes of every owner.
func WithoutOwner(ctx context.Context) context.Context {
	c := From(ctx)
	c.Owner = nil
	return With(ctx, c)
}

// OwnerOf returns the owner for the calls of ctx. For the server, which sees the sandboxes of every owner, it returns
// the zero Owner and false.
func OwnerOf(ctx context.Context) (Owner, bool) {
	if o := From(ctx).Owner; o != nil {
		return *o, true
	}
	return Owner{}, false
}

// WithSurface returns a context for calls that come through a surface. The first surface counts, because calls of the
// console then come through other surfaces.
func WithSurface(ctx context.Context, name string) context.Context {
	c := From(ctx)
	if c.Origin.Surface != "" {
		return ctx
	}
	c.Origin.Surface = name
	return With(ctx, c)
}

// WithPulls returns a context for calls that report the images that they pull.
func WithPulls(ctx context.Context, report func(hutch.Transfer) error) context.Context {
	c := From(ctx)
	c.Pulls = report
	return With(ctx, c)
}

// WithTrace returns a context for calls that are part of a trace. An invalid traceparent is ignored.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" || hutch.TraceOf(hutch.WithTrace(context.Background(), traceparent)) != traceparent {
		return ctx
	}
	c := From(ctx)
	c.Trace = traceparent
	return With(ctx, c)
}

// TraceID returns the id of the caller's trace, or "".
func (c Caller) TraceID() string {
	if c.Trace == "" {
		return ""
	}
	return c.Trace[3:35]
}

// OwnBudget returns a context for work that outlives its request. The memory of the work is charged to the same owner,
// until the returned function is called. Until then the memory of the request stays charged too, because the work still
// uses what the request has sent.
func OwnBudget(ctx context.Context) (context.Context, func()) {
	c := From(ctx)
	release := c.Budget.Hold()
	var free func()
	c.Budget, free = c.Budget.Again()
	return With(ctx, c), func() { free(); release() }
}

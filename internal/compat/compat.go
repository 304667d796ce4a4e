// Package compat has the code that the translations of other APIs share. Each translation is a package below: it turns
// the requests of another API's clients into calls of a hutch.Service, and the answers into the form that those clients
// read. A translation does not know the engine and makes no decisions about rights: a guard checks each request first,
// and policies check each call.
package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/httpio"
	"hutch/internal/jsonfault"
)

// Stall is how long a client can leave data unread, or send none, before it is disconnected.
const Stall = 5 * time.Minute

// MaxRequest is the longest request in JSON, in bytes.
const MaxRequest = 8 << 20

const bodyTime = time.Minute // for a request in JSON to arrive

// ErrTooLarge is the error for a request over [MaxRequest].
var ErrTooLarge = hutch.Errorf(hutch.Invalid, "the request's body is larger than %d MiB: send large data as a file", MaxRequest>>20)

// ReadJSON decodes the body of a request into v; an empty body leaves v unchanged. A field that v does not have is
// Unsupported, and the error names it, because ignoring it would do something else than the client asked for.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := ReadBody(w, r)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return err
	}
	return Decode(b, v)
}

// ReadBody returns the body of a request in JSON. The memory of its decoded form is charged to the caller.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	b, err := httpio.ReadAll(w, r, MaxRequest, bodyTime)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, ErrTooLarge
	}
	if errors.Is(err, hutch.Exhausted) {
		return nil, err
	}
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the request's body did not arrive whole: send it again").Because(err)
	}
	if !TakeJSON(r.Context(), b) {
		return nil, ErrNoRoom
	}
	return b, nil
}

// Decode reads one JSON value as [ReadJSON] does.
func Decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.InputOffset() < int64(len(bytes.TrimRight(b, " \t\r\n"))) {
		return hutch.Errorf(hutch.Invalid, "Invalid JSON body: it continues after the end of its value")
	}
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*hutch.Error](err); ok {
		return own // from a value that checks itself
	}
	switch f := jsonfault.Find(b, v, err); {
	case f == nil:
		return hutch.Errorf(hutch.Invalid, "Invalid JSON body")
	case f.Unknown:
		return hutch.Errorf(hutch.Unsupported, "this server does not have the option %.200q: leave it out", f.Path).Naming(hutch.AboutField, f.Path)
	default:
		return f.Refusal()
	}
}

// Calls are the open requests of a surface, which is the API for one kind of client. They end with the server.
type Calls struct {
	surface string
	ctx     context.Context
	close   context.CancelCauseFunc
	under   sync.WaitGroup
}

// NewCalls returns the calls of a surface, whose name is recorded with each call.
func NewCalls(surface string) *Calls {
	c := &Calls{surface: surface}
	c.ctx, c.close = context.WithCancelCause(context.Background())
	return c
}

// Begin returns the request with a context that ends when Close is called. Calls in this context find only the caller's
// own sandboxes. Otherwise another owner could receive the caller's data: surfaces create a sandbox when it is first
// used, under an id that others can know, and another owner could share a sandbox with that id. The handler calls done
// before it returns.
func (c *Calls) Begin(r *http.Request) (_ *http.Request, done func()) {
	c.under.Add(1)
	ctx, end := caller.Until(caller.OwnOnly(caller.WithSurface(r.Context(), c.surface)), c.ctx)
	return r.WithContext(ctx), func() {
		end()
		c.under.Done()
	}
}

// Go runs f after the request of ctx has ended, for the same caller. The context of f ends with the caller's token and
// with Close. The memory that is charged in f is released when f returns.
func (c *Calls) Go(ctx context.Context, f func(context.Context)) {
	ctx, free := caller.OwnBudget(context.WithoutCancel(ctx))
	ctx, end := caller.Until(ctx, c.ctx)
	release := func() {}
	if p := caller.From(ctx).Principal; p != nil {
		ctx, release = p.Hold(ctx)
	}
	c.under.Go(func() {
		defer free()
		defer end()
		defer release()
		f(ctx)
	})
}

// Close ends the open calls and waits for them. Call it when the server no longer accepts connections.
func (c *Calls) Close() {
	c.close(hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment"))
	c.under.Wait()
}

// Owner returns the id of the owner that a call is made for; empty for the server itself.
func Owner(ctx context.Context) string {
	owner, _ := caller.OwnerOf(ctx)
	return owner.ID
}

// Missing reports whether err says that the sandbox itself does not exist, and not something in it.
func Missing(err error) bool {
	e, ok := errors.AsType[*hutch.Error](err)
	if !ok || e.Kind != hutch.NotFound {
		return false
	}
	about, _ := e.About()
	return about == hutch.AboutSandbox
}

// OnFirstUse calls do; if the sandbox does not exist, it creates the sandbox and calls do again. So that a command runs
// only once, do must return another error than NotFound after something has begun.
func OnFirstUse(ctx context.Context, svc hutch.Service, sandbox string, do func() error) error {
	err := do()
	if !Missing(err) {
		return err
	}
	if _, err := svc.Create(ctx, hutch.CreateRequest{ID: sandbox}); err != nil {
		return err
	}
	return do()
}

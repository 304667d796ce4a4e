// Package policy decides who may do what: it wraps a [hutch.Service], verb by
// verb, so that a new one cannot slip past.
//
// Every call is told to an observer, needs a principal in its context with one
// of the verb's scopes, is counted, and is made as the owner of the sandbox
// that it is about: the caller or, when another has granted it access and the
// caller has no sandbox of that id, that other. Nothing here says whether
// somebody else has a sandbox: the service below answers for what an owner does
// not have, in its own words and its own time.
package policy

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/quota"
	"hutch/internal/store"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// Options are what a policy is made from; the zero value works.
type Options struct {
	// Tokens are administered for those with the scope admin.
	Tokens hutch.Tokens
	// Secrets are kept for those who may run something that uses them.
	Secrets hutch.Secrets
	// Backups are copies of folders.
	Backups hutch.Backups
	// Accounts and Audit are what was used and done.
	Accounts hutch.Accounts
	Audit    audit.Reader
	// Pools is what is kept ready.
	Pools hutch.Pools
	// Network is the most that sandboxes may reach by the word of callers
	// without the scope admin.
	Network hutch.Network
	// Operations counts calls about sandboxes; nil does not count.
	Operations *quota.Meter
	// Observer is told of every call; nil for nobody.
	Observer audit.Observer
	// Redact takes secrets out of what the observer is told of a call's target;
	// nil leaves it as it is.
	Redact func(string) string
	// Grants is where grants are kept; nil is in memory alone.
	Grants *store.Shelf
	Log    *slog.Logger
}

// Policy is a hutch.Service, and the interfaces beside it, with a hook around
// each call. Only the verbs that are methods here need more than that hook.
type Policy struct {
	wrap.Service
	wrap.TokenService
	wrap.SecretService
	wrap.BackupService

	next   hutch.Service
	opt    Options
	grants *grants
}

var (
	_ hutch.Service  = (*Policy)(nil)
	_ hutch.Sharing  = (*Policy)(nil)
	_ hutch.Tokens   = (*Policy)(nil)
	_ hutch.Accounts = (*Policy)(nil)
	_ hutch.Pools    = (*Policy)(nil)
	_ audit.Reader   = (*Policy)(nil)
	_ hutch.Secrets  = (*Policy)(nil)
	_ hutch.Backups  = (*Policy)(nil)
)

// New returns a policy in front of next.
func New(ctx context.Context, next hutch.Service, opt Options) (*Policy, error) {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Observer == nil {
		opt.Observer = audit.Observers{}
	}
	if opt.Redact == nil {
		opt.Redact = func(text string) string { return text }
	}
	g, err := openGrants(ctx, opt.Grants)
	p := &Policy{next: next, opt: opt, grants: g}
	p.Service = wrap.Service{Next: next, Hook: p.around}
	p.TokenService = wrap.TokenService{Next: opt.Tokens, Hook: p.around}
	p.SecretService = wrap.SecretService{Next: opt.Secrets, Hook: p.around}
	p.BackupService = wrap.BackupService{Next: opt.Backups, Hook: p.around}
	return p, err
}

// maxTarget bounds what is said of a call's target, in bytes.
const maxTarget = 200

// around makes one call of a verb, if the caller may make it.
func (p *Policy) around(ctx context.Context, c verb.Call, result any, run func(context.Context) error) (err error) {
	who := auth.From(ctx)
	ctx, end, err := p.opt.Observer.Begin(ctx, p.operation(ctx, who, c))
	if err != nil {
		return err
	}
	defer func() { end(audit.Outcome{Err: err, Sandbox: createdSandbox(result, err)}) }()
	if ctx, err = p.admit(ctx, who, c); err != nil {
		return err
	}
	if err = p.permit(ctx, c); err != nil {
		return err
	}
	err = errPanicked // what the observer is given if run does not return
	err = run(ctx)
	return err
}

var errPanicked = hutch.Errorf(hutch.Internal, "internal error; the server's log has the cause")

// createdSandbox is the id of the sandbox that a call returned.
func createdSandbox(result any, err error) string {
	if sb, ok := result.(*hutch.Sandbox); ok && err == nil {
		return sb.ID
	}
	return ""
}

func (p *Policy) operation(ctx context.Context, who *auth.Principal, c verb.Call) audit.Operation {
	from := audit.OriginOf(ctx)
	op := audit.Operation{
		Time: time.Now(), Sandbox: audit.Head(c.Sandbox, hutch.MaxID), Verb: c.Verb, Target: audit.Head(p.opt.Redact(c.Target), maxTarget),
		Surface: from.Surface, Remote: from.Remote, Request: from.Request, ClientRequest: from.ClientRequest, Trace: hutch.TraceID(ctx),
	}
	if who != nil {
		op.Token, op.TokenName, op.Owner = who.ID, who.Name, who.Owner
	}
	return op
}

// admit returns the context to make a call with, or why it is refused.
func (p *Policy) admit(ctx context.Context, who *auth.Principal, c verb.Call) (context.Context, error) {
	v, known := verb.Find(c.Verb)
	if c.Runs {
		exec, _ := verb.Find("Exec")
		v.Scopes, v.Access = exec.Scopes, exec.Access
	}
	switch {
	case who == nil || !known:
		return ctx, hutch.Errorf(hutch.Denied, "nobody may do this without a token")
	case !who.Has(v.Scopes...):
		return ctx, who.Lack(c.Verb, v.Scopes)
	case v.About == verb.Server:
		return ctx, nil
	case v.About == verb.Sandbox:
		if err := hutch.CheckID(c.Sandbox); err != nil {
			return ctx, err
		}
	}
	if err := p.count(ctx, who, v); err != nil {
		return ctx, err
	}
	owner, err := p.owner(ctx, who, c, v)
	return hutch.WithOwner(ctx, owner), err
}

// count takes one operation from the caller's quota. A verb that frees is
// counted, too, and never refused.
func (p *Policy) count(ctx context.Context, who *auth.Principal, v verb.Verb) error {
	switch {
	case p.opt.Operations == nil:
		return nil
	case v.Frees:
		return p.opt.Operations.Note(ctx, who.ID, who.Limits.Operations)
	}
	_, err := p.opt.Operations.Take(ctx, who.ID, who.Limits.Operations)
	return err
}

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

// Policy implements hutch.Service, and what is beside it, for those who may.
type Policy struct {
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
	return &Policy{next: next, opt: opt, grants: g}, err
}

// call is one call of a verb.
type call struct {
	verb    string
	sandbox string
	target  string // within it, for the record
	acts    bool   // does more in it than the verb says
	asks    bool   // for secrets of the sandbox's owner
}

// rule is what a verb needs.
type rule struct {
	scopes []hutch.Scope // one of these
	// access is what a grant on another's sandbox must give; none does when it
	// is empty.
	access hutch.Access
	about  subject
}

type subject int

const (
	aSandbox  subject = iota // which exists, and is counted
	noSandbox                // counted all the same
	anEnd                    // as aSandbox, but never refused for a quota: it frees
	theServer                // neither
)

var (
	see        = rule{scopes: []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec, hutch.ScopeFiles}, access: hutch.ReadAccess}
	follow     = rule{scopes: []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec}, access: hutch.ReadAccess}
	run        = rule{scopes: []hutch.Scope{hutch.ScopeExec}, access: hutch.WriteAccess}
	read       = rule{scopes: []hutch.Scope{hutch.ScopeRead, hutch.ScopeFiles}, access: hutch.ReadAccess}
	change     = rule{scopes: []hutch.Scope{hutch.ScopeFiles}, access: hutch.WriteAccess}
	own        = rule{scopes: []hutch.Scope{hutch.ScopeExec}}
	keep       = rule{scopes: []hutch.Scope{hutch.ScopeExec}, about: noSandbox}
	copying    = rule{scopes: []hutch.Scope{hutch.ScopeFiles}} // of what is one's own
	administer = rule{scopes: []hutch.Scope{hutch.ScopeAdmin}, about: theServer}
)

// rules has every verb. One that is missing is denied to all.
var rules = map[string]rule{
	"Create":    {scopes: run.scopes, about: noSandbox},
	"Sandboxes": {scopes: see.scopes, about: noSandbox},
	"Sandbox":   see,
	"Destroy":   {scopes: run.scopes, about: anEnd},

	"Exec": run, "StartProcess": run, "Signal": run, "Input": run, "Resize": run, "CleanProcesses": run,
	"Process": follow, "Processes": follow, "Logs": follow, "Wait": follow, "Languages": follow,

	"CreateContext": run, "DeleteContext": run, "Interrupt": run, "RunCode": run, "Contexts": follow,

	"GitClone": run, "GitCommit": run, "GitStatus": read, "GitDiff": read,

	"ReadFile": read, "Stat": read, "ListFiles": read, "SearchFiles": read, "Watch": read, "Pack": read,
	"WriteFile": change, "EditFile": change, "Mkdir": change, "Move": change, "Copy": change, "Delete": change, "Chmod": change, "Unpack": change,

	"Expose": show, "Unexpose": show, "LinkPort": show, "DialPort": connect,
	"Ports": shown, "ValidatePortToken": shown, "WatchPorts": shown,

	"Network": see, "Connections": see, "SetNetwork": own,

	"SetSecret": keep, "Secrets": keep, "DeleteSecret": keep,

	"Backup": copying, "RestoreBackup": copying, "DeleteBackup": {scopes: copying.scopes, about: noSandbox}, "Backups": {scopes: read.scopes, about: noSandbox},

	"Snapshot": own, "Fork": own, "Pause": run, "Resume": run, "DeleteSnapshot": keep,
	"Snapshots": {scopes: see.scopes, about: noSandbox},

	"Share": own, "Unshare": own, "Grants": own,

	"Usage": {scopes: see.scopes, about: theServer}, "Audit": administer, "Metrics": administer, "Pool": administer,

	"CreateToken": administer, "Token": administer, "Tokens": administer, "RotateToken": administer, "RevokeToken": administer,
}

// maxTarget bounds what is said of a call's target, in bytes.
const maxTarget = 200

// do makes one call of a verb, if the caller may.
func do[T any](ctx context.Context, p *Policy, c call, run func(context.Context) (T, error)) (v T, err error) {
	who := auth.From(ctx)
	ctx, end, err := p.opt.Observer.Begin(ctx, p.operation(ctx, who, c))
	if err != nil {
		return v, err
	}
	defer func() { end(audit.Outcome{Err: err, Sandbox: madeBy(v, err)}) }()
	if ctx, err = p.admit(ctx, who, c); err != nil {
		return v, err
	}
	err = errPanicked // what the observer hears if run does not return
	v, err = run(ctx)
	return v, err
}

// carry is do for a verb that returns an error alone.
func carry(ctx context.Context, p *Policy, c call, run func(context.Context) error) error {
	_, err := do(ctx, p, c, func(ctx context.Context) (struct{}, error) { return struct{}{}, run(ctx) })
	return err
}

var errPanicked = hutch.Errorf(hutch.Internal, "internal error; the server's log has the cause")

// madeBy is the id of a sandbox that a call returned.
func madeBy(v any, err error) string {
	if sb, ok := v.(hutch.Sandbox); ok && err == nil {
		return sb.ID
	}
	return ""
}

func (p *Policy) operation(ctx context.Context, who *auth.Principal, c call) audit.Operation {
	from := audit.OriginOf(ctx)
	op := audit.Operation{
		Time: time.Now(), Sandbox: audit.Head(c.sandbox, hutch.MaxID), Verb: c.verb, Target: audit.Head(p.opt.Redact(c.target), maxTarget),
		Surface: from.Surface, Remote: from.Remote, Request: from.Request, Trace: hutch.TraceID(ctx),
	}
	if who != nil {
		op.Token, op.TokenName, op.Owner = who.ID, who.Name, who.Owner
	}
	return op
}

// admit returns the context to make a call with, or why it is refused.
func (p *Policy) admit(ctx context.Context, who *auth.Principal, c call) (context.Context, error) {
	r, known := rules[c.verb]
	if c.acts {
		r = run
	}
	switch {
	case who == nil || !known:
		return ctx, hutch.Errorf(hutch.Denied, "nobody may do this without a token")
	case !who.Has(r.scopes...):
		return ctx, who.Lack(c.verb, r.scopes)
	case r.about == theServer:
		return ctx, nil
	}
	if r.about != noSandbox {
		if err := hutch.CheckID(c.sandbox); err != nil {
			return ctx, err
		}
	}
	if err := p.count(ctx, who, r); err != nil {
		return ctx, err
	}
	owner, err := p.owner(ctx, who, c, r)
	return hutch.WithOwner(ctx, owner), err
}

func (p *Policy) count(ctx context.Context, who *auth.Principal, r rule) error {
	switch {
	case p.opt.Operations == nil:
		return nil
	case r.about == anEnd:
		return p.opt.Operations.Note(ctx, who.ID, who.Limits.Operations)
	}
	_, err := p.opt.Operations.Take(ctx, who.ID, who.Limits.Operations)
	return err
}

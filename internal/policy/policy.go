// Package policy decides who can call which verb: it wraps every verb of a [hutch.Service], so a new verb cannot be
// forgotten.
//
// Every call is reported to an observer, needs a principal in its context with one of the verb's scopes, and is
// counted. It is made on behalf of the owner of its sandbox. That is the caller or, if the caller has no sandbox with
// that id, another owner who has granted access. No answer of this package reveals whether another owner has a sandbox:
// for a sandbox that the owner does not have, the wrapped service itself answers.
package policy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/quota"
	"hutch/internal/store"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// Options are the settings of a policy; the zero value works.
type Options struct {
	// Tokens manages tokens, for callers with the scope admin.
	Tokens hutch.Tokens
	// Secrets stores secrets, for callers that can run programs.
	Secrets hutch.Secrets
	// Backups stores copies of folders.
	Backups hutch.Backups
	// Images stores images, for callers that can run programs.
	Images hutch.Images
	// Volumes stores folders that outlive sandboxes.
	Volumes hutch.Volumes
	// Accounts reports usage, and Audit reads the audit log.
	Accounts hutch.Accounts
	Audit    audit.Reader
	// Owners lists and deletes the data of owners.
	Owners hutch.Owners
	// Nodes are the machines of the server.
	Nodes hutch.Nodes
	// SSH stores the keys of SSH clients.
	SSH hutch.SSH
	// Pools reports the instances that are kept ready.
	Pools hutch.Pools
	// Checkpoints copies running sandboxes for backups of the server.
	Checkpoints hutch.Checkpoints
	// Examiner looks at the server itself.
	Examiner hutch.Examiner
	// Questions asks a model for programs, and runs them.
	Questions hutch.Questions
	// Network is the widest network that callers without the scope admin can give their sandboxes.
	Network hutch.Network
	// Operations counts calls about sandboxes; nil counts nothing.
	Operations *quota.Meter
	// Timelines show what happened in sandboxes. Record writes each allowed call to the timelines; nil for none.
	Timelines hutch.Timelines
	Record    wrap.Hook
	// Histories show what sandboxes used over time.
	Histories hutch.Histories
	// Observer gets every call; nil for none.
	Observer audit.Observer
	// Redact removes secrets from a call's target before the observer sees it; nil changes nothing.
	Redact func(string) string
	// Grants is where grants are stored; nil keeps them in memory only.
	Grants *store.Collection
	Log    *slog.Logger
}

// Policy is a hutch.Service, and a server's other interfaces, with a hook around each call. Only verbs that need more
// than the hook are methods here.
type Policy struct {
	wrap.Service
	wrap.TokenService
	wrap.SecretService
	wrap.BackupService
	wrap.ImageService
	wrap.VolumeService
	wrap.SSHService
	wrap.NodeService

	next   hutch.Service
	opt    Options
	grants *grants
}

var (
	_ hutch.Service     = (*Policy)(nil)
	_ hutch.Sharing     = (*Policy)(nil)
	_ hutch.Tokens      = (*Policy)(nil)
	_ hutch.Accounts    = (*Policy)(nil)
	_ hutch.Pools       = (*Policy)(nil)
	_ hutch.Checkpoints = (*Policy)(nil)
	_ hutch.Examiner    = (*Policy)(nil)
	_ hutch.Owners      = (*Policy)(nil)
	_ hutch.Nodes       = (*Policy)(nil)
	_ audit.Reader      = (*Policy)(nil)
	_ hutch.Secrets     = (*Policy)(nil)
	_ hutch.Backups     = (*Policy)(nil)
	_ hutch.Images      = (*Policy)(nil)
	_ hutch.Volumes     = (*Policy)(nil)
	_ hutch.SSH         = (*Policy)(nil)

	_ hutch.Questions = (*Policy)(nil)
	_ hutch.Timelines = (*Policy)(nil)
	_ hutch.Histories = (*Policy)(nil)
)

// New returns a policy that wraps next.
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
	p.ImageService = wrap.ImageService{Next: opt.Images, Hook: p.around}
	p.VolumeService = wrap.VolumeService{Next: opt.Volumes, Hook: p.around}
	p.SSHService = wrap.SSHService{Next: opt.SSH, Hook: p.around}
	p.NodeService = wrap.NodeService{Next: opt.Nodes, Hook: p.around}
	return p, err
}

// maxTarget bounds the recorded target of a call, in bytes.
const maxTarget = 200

// around makes one call of a verb if the caller is allowed to.
func (p *Policy) around(ctx context.Context, c verb.Call, result any, run func(context.Context) error) (err error) {
	who := caller.From(ctx).Principal
	ctx, end, err := p.opt.Observer.Begin(ctx, p.operation(ctx, who, c))
	if err != nil {
		return err
	}
	defer func() { end(audit.Outcome{Err: err, Sandbox: createdSandbox(result, err)}) }()
	ctx, life, err := p.admit(ctx, who, c)
	if err != nil {
		return err
	}
	ctx, release := caller.Until(ctx, life)
	defer release()
	if err = p.permit(ctx, c); err != nil {
		return err
	}
	err = errPanicked // the error for the observer if run panics
	if p.opt.Record != nil {
		err = p.opt.Record(ctx, c, result, run)
	} else {
		err = run(ctx)
	}
	bind(life, result)
	return err
}

var errPanicked = hutch.AsError(errors.New("the call panicked"))

// createdSandbox returns the id of the sandbox that a call returned or used.
func createdSandbox(result any, err error) string {
	switch made := result.(type) {
	case *hutch.Sandbox:
		if err == nil {
			return made.ID
		}
	case *hutch.Answer:
		return made.SandboxID
	}
	return ""
}

func (p *Policy) operation(ctx context.Context, who *caller.Principal, c verb.Call) audit.Operation {
	from := caller.From(ctx).Origin
	op := audit.Operation{
		Time: time.Now(), Sandbox: audit.Head(c.Sandbox, hutch.MaxID), Verb: c.Verb, Target: audit.Head(p.opt.Redact(c.Target), maxTarget),
		Surface: from.Surface, Remote: from.Remote, Request: from.Request, ClientRequest: from.ClientRequest, Trace: caller.From(ctx).TraceID(),
	}
	if who != nil {
		op.Token, op.TokenName, op.Owner = who.ID, who.Name, who.Owner
	}
	return op
}

// admit returns the context for a call, or the error that refuses it. If the call needs a grant, life ends with the grant.
func (p *Policy) admit(ctx context.Context, who *caller.Principal, c verb.Call) (_ context.Context, life context.Context, err error) {
	v, known := verb.Find(c.Verb)
	if c.Runs {
		exec, _ := verb.Find("Exec")
		v.Scopes, v.Access = exec.Scopes, exec.Access
	}
	switch {
	case who == nil || !known:
		return ctx, nil, hutch.Errorf(hutch.Denied, "this needs a token: send the header Authorization: Bearer TOKEN")
	case !who.Has(v.Scopes...):
		return ctx, nil, who.Lack(c.Verb, v.Scopes)
	case v.About == verb.Server:
		return ctx, nil, nil
	case v.About == verb.Sandbox:
		if err := hutch.CheckID(c.Sandbox); err != nil {
			return ctx, nil, err
		}
	}
	if err := p.count(ctx, who, v); err != nil {
		return ctx, nil, err
	}
	owner, life, err := p.owner(ctx, who, c, v)
	return caller.WithOwner(ctx, owner), life, err
}

// count takes one operation from the caller's quota. A verb that frees something is counted too, but never refused.
func (p *Policy) count(ctx context.Context, who *caller.Principal, v verb.Verb) error {
	switch {
	case p.opt.Operations == nil:
		return nil
	case v.Frees:
		return p.opt.Operations.Note(ctx, who.ID, who.Limits.Operations)
	}
	_, err := p.opt.Operations.Take(ctx, who.ID, who.Limits.Operations)
	return err
}

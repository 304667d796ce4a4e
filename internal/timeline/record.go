package timeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/verb"
)

// Bounds on texts, in bytes.
const (
	maxTarget = 256
	maxError  = 512
)

// slow is how long a call runs before it is written as running.
const slow = time.Second

// Around records a call of a verb about a sandbox. It is a wrap.Hook.
func (t *Timelines) Around(ctx context.Context, c verb.Call, result any, run func(context.Context) error) (err error) {
	kind, ok := kinds[c.Verb]
	if !ok || c.Sandbox == "" && c.Verb != "Ask" {
		return run(ctx)
	}
	owner, _ := caller.OwnerOf(ctx)
	p := &pending{t: t, ctx: ctx, call: c, kind: kind, owner: owner.ID, began: time.Now()}
	timer := time.AfterFunc(slow, p.begin)
	err = errPanicked // written if run does not return
	defer func() { timer.Stop(); p.end(result, err) }()
	err = run(ctx)
	return err
}

var errPanicked = hutch.AsError(errors.New("the call panicked"))

// pending is a call in progress.
type pending struct {
	t     *Timelines
	ctx   context.Context
	call  verb.Call
	kind  hutch.TimelineKind
	owner string
	began time.Time

	mu    sync.Mutex
	ended bool
	id    int64 // id of its entry, once it has one
}

// begin writes that the call is running.
func (p *pending) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	e := p.entry()
	e.Result = hutch.TimelineRunning
	p.id = p.t.write(name{p.owner, p.call.Sandbox}, false, e)
}

// end records how the call has ended. A missing sandbox has no timeline to write to.
func (p *pending) end(result any, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.id == 0 && (isLife(p.call.Verb) && err == nil || hutch.KindOf(err) == hutch.NotFound && isSandbox(err)) {
		return // the engine has recorded it, or the sandbox does not exist
	}
	e := p.entry()
	e.ID, e.Duration, e.Result = p.id, hutch.InSeconds(time.Since(p.began)), audit.ResultOf(err)
	if err != nil {
		e.Error = p.t.text(p.owner, hutch.AsError(err).Message, maxError)
	}
	sandbox := p.call.Sandbox
	if a, ok := result.(*hutch.Answer); ok {
		sandbox = a.SandboxID
	}
	p.outcome(&e, result, err)
	p.t.write(name{p.owner, sandbox}, err == nil && proves(p.kind), e)
}

func isSandbox(err error) bool {
	about, _ := hutch.AsError(err).About()
	return about == hutch.AboutSandbox
}

// proves reports whether a successful call of this kind shows that the sandbox exists.
func proves(k hutch.TimelineKind) bool {
	return k == hutch.TimelineCommand || k == hutch.TimelineCode || k == hutch.TimelineFile || k == hutch.TimelineGit
}

func (p *pending) entry() hutch.TimelineEntry {
	e := hutch.TimelineEntry{Time: p.began.UTC(), Kind: p.kind, Event: p.call.Verb, Target: p.t.text(p.owner, p.call.Target, maxTarget)}
	return by(p.ctx, e)
}

// by adds the caller and the API of the call to an entry.
func by(ctx context.Context, e hutch.TimelineEntry) hutch.TimelineEntry {
	from := caller.From(ctx)
	e.Surface, e.Request = audit.Head(from.Origin.Surface, 64), audit.Head(from.Origin.Request, 128)
	if who := from.Principal; who != nil {
		e.Token, e.TokenName = who.ID, who.Name
	}
	return e
}

// text returns a text of a caller or a program without secrets of the owner, cut to at most most bytes.
func (t *Timelines) text(owner, s string, most int) string {
	return audit.Head(t.opt.Redact(owner, s), most)
}

// outcome adds the result of the call.
func (p *pending) outcome(e *hutch.TimelineEntry, result any, err error) {
	switch r := result.(type) {
	case *hutch.ExecResult:
		program(e, r.ExitCode, r.TimedOut, r.Limit, err)
	case *hutch.RunResult:
		program(e, r.ExitCode, r.TimedOut, r.Limit, err)
		e.Context = r.ContextID
		if r.Error != nil && e.Error == "" {
			e.Error = p.t.text(p.owner, r.Error.Name+": "+r.Error.Message, maxError)
		}
	case *hutch.Process:
		e.Process = r.ID
	case *hutch.CodeContext:
		e.Context = r.ID
	case *hutch.Snapshot:
		e.Snapshot = r.ID
	case *[]hutch.Sandbox:
		for _, v := range *r {
			e.Sandboxes = append(e.Sandboxes, v.ID)
		}
	}
}

// program adds how a program ended.
func program(e *hutch.TimelineEntry, code int, timedOut bool, limit string, err error) {
	if err != nil {
		return
	}
	e.ExitCode, e.Limit = &code, limit
	if timedOut {
		e.Limit = "time"
	}
	if code != 0 || e.Limit != "" {
		e.Result = hutch.TimelineFailed
	}
}

// Happened records what the engine did with a sandbox, by itself or for the caller of ctx, or the end of a background
// process. Only the first report of an end is recorded. If too many ends come at once, some are left for a later report.
func (t *Timelines) Happened(ctx context.Context, owner, sandbox string, e hutch.TimelineEntry) {
	if e.Event == ProcessEnded {
		if t.expired(e.Time, time.Now()) { // its journal can be gone already
			return
		}
		if j, err := t.find(name{owner, sandbox}, true); err != nil || j == nil || !j.admitEnd(e.Process) {
			return
		}
		e.Target = t.text(owner, e.Target, maxTarget)
	} else {
		e = by(ctx, e)
		e.Time, e.Kind, e.Target = time.Now().UTC(), hutch.TimelineLife, t.text(owner, e.Target, maxError)
	}
	if e.Result == "" {
		e.Result = hutch.TimelineOK
	}
	t.write(name{owner, sandbox}, true, e)
}

// Connected records a complete line of a sandbox's network log. Lines over the rate limit are only counted.
func (t *Timelines) Connected(owner, sandbox string, c hutch.Connection) {
	if c.Protocol == "dns" && c.Verdict == hutch.Allowed {
		return // the connection that follows says more
	}
	n := name{owner, sandbox}
	j, err := t.find(n, true)
	if err != nil || j == nil || !j.admit() {
		return
	}
	e := hutch.TimelineEntry{Time: c.Time.UTC(), Duration: c.Duration, Kind: hutch.TimelineNetwork, Event: Allowed, Result: hutch.TimelineOK, Target: t.text(owner, describe(c), maxTarget)}
	if c.Verdict == hutch.Refused {
		e.Event, e.Result, e.Error = Denied, string(hutch.Denied), t.text(owner, c.Reason, maxError)
	}
	e.Skipped = j.takeSkipped()
	t.write(n, true, e)
}

// describe returns a connection as one line of text.
func describe(c hutch.Connection) string {
	s := c.Protocol + " " + c.Host
	if c.Port != 0 {
		s += fmt.Sprintf(":%d", c.Port)
	}
	if c.Method != "" {
		s += " " + c.Method
	}
	if c.Status != 0 {
		s += fmt.Sprintf(" %d", c.Status)
	}
	return s
}

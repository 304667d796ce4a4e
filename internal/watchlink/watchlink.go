// Package watchlink keeps links by which anyone can watch one terminal, and do nothing else.
//
// A link is 160 random bits; the server stores its SHA-256. Its viewers read the terminal's output in the name of the
// token that made the link, with that token's scopes and audit record. So a link shows nothing that its maker could not
// see, and the redactor still hides secrets. The link ends when it expires or is revoked, or when its token ends. It also
// ends with its sandbox: another sandbox that gets the same id, such as a copy with the same terminals, is not shown. No
// other call can be made with a link.
package watchlink

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/store"
)

const (
	usualTime = time.Hour
	maxTime   = 7 * 24 * time.Hour
	// maxLinks bounds the links of one owner, maxViewers the viewers of one link, and maxOpens how often it is opened in a
	// minute: each time uses the sandbox and writes to the audit log.
	maxLinks   = 100
	maxViewers = 20
	maxOpens   = 60
)

// Surface is the name of these links in the audit log.
const Surface = "watch link"

// Options are what links need.
type Options struct {
	// Processes finds the terminal and its sandbox, for the caller of the context. Required.
	Processes interface {
		Process(ctx context.Context, sandbox, process string) (hutch.Process, error)
		Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error)
	}
	// Holder returns the principal of an owner's live token, or nil if there is none. Required.
	Holder func(owner string) *caller.Principal
	// Claim counts the connection of a request towards the viewers of an owner's terminals; it returns false if there
	// are too many. Viewers have no token, so without Claim they would use the connections that are kept for people who
	// sign in. nil accepts all.
	Claim      func(ctx context.Context, owner string) bool
	Collection *store.Collection // where links are stored; nil keeps them in memory only
	Observer   audit.Observer
	Log        *slog.Logger
}

type hash = [sha256.Size]byte

// entry is a link. Its record never changes.
type entry struct {
	key    hash
	record record
	life   context.Context // done when the link is revoked
	end    context.CancelCauseFunc

	viewers int // guarded by the mutex of Links
	opens   int
	minute  time.Time // start of the minute in which opens are counted
}

type record struct {
	hutch.TerminalLink
	Owner string    `json:"owner"`
	Made  time.Time `json:"made"` // when the sandbox was created: another sandbox can get its id
}

// Links are the links of a server.
type Links struct {
	opt    Options
	stored *store.Mirror

	mu    sync.Mutex
	byKey map[hash]*entry
}

// Open reads the stored links, and removes those that have expired.
func Open(ctx context.Context, opt Options) (l *Links, err error) {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Observer == nil {
		opt.Observer = audit.Observers{}
	}
	if opt.Claim == nil {
		opt.Claim = func(context.Context, string) bool { return true }
	}
	l = &Links{opt: opt, byKey: map[hash]*entry{}}
	if l.stored, err = store.OpenMirror(ctx, opt.Collection, l.apply); err != nil {
		return nil, err
	}
	return l, l.stored.Change(ctx, func(d *store.Draft) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tidyLocked(d)
		return nil
	})
}

// apply makes a link match its document, even when another server has changed the document. If the link is gone, its
// viewers are disconnected.
func (l *Links) apply(name string, doc []byte) error {
	key, err := hex.DecodeString(name)
	var rec record
	if err == nil && doc != nil {
		err = json.Unmarshal(doc, &rec)
	}
	if err != nil || len(key) != len(hash{}) {
		return fmt.Errorf("read the link %.16s: it is damaged", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.byKey[hash(key)]
	switch {
	case doc == nil && before != nil:
		delete(l.byKey, before.key)
		before.end(errRevoked)
	case doc != nil && before == nil:
		e := newEntry(hash(key), rec)
		l.byKey[e.key] = e
	}
	return nil
}

func newEntry(key hash, rec record) *entry {
	life, end := context.WithCancelCause(context.Background())
	return &entry{key: key, record: rec, life: life, end: end}
}

var needs = []hutch.Scope{hutch.ScopeExec}

// own returns the principal of a call, if it can make links of its own terminals.
func own(ctx context.Context, verb string) (*caller.Principal, error) {
	who := caller.From(ctx).Principal
	if who == nil {
		return nil, hutch.Errorf(hutch.Denied, "only the holder of a token can share a terminal")
	}
	if !who.Has(needs...) {
		return nil, who.Lack(verb, needs)
	}
	return who, nil
}

// recorded makes a call, and reports it to the observer.
func (l *Links) recorded(ctx context.Context, verb, sandbox, process string, do func(context.Context, *caller.Principal) error) error {
	op := audit.Operation{Verb: verb, Sandbox: sandbox, Target: process}
	who, err := own(ctx, verb)
	if p := caller.From(ctx).Principal; p != nil {
		op.Token, op.TokenName, op.Owner = p.ID, p.Name, p.Owner
	}
	ctx, end, begun := l.opt.Observer.Begin(ctx, op)
	if begun != nil {
		return begun
	}
	if err == nil {
		err = do(caller.OwnOnly(ctx), who)
	}
	end(audit.Outcome{Err: err})
	return err
}

// Create makes a link to a terminal of the caller's own, and returns it with its secret.
func (l *Links) Create(ctx context.Context, sandbox, process string, lifetime hutch.Seconds) (shared hutch.SharedTerminal, err error) {
	if !(lifetime >= 0 && lifetime.Duration() <= maxTime) {
		return shared, hutch.Errorf(hutch.Invalid, "a lifetime of %v s: give seconds, up to %v, or leave it out for %v", lifetime, hutch.InSeconds(maxTime), hutch.InSeconds(usualTime)).Naming(hutch.AboutField, "lifetime")
	}
	err = l.recorded(ctx, "ShareTerminal", sandbox, process, func(ctx context.Context, who *caller.Principal) error {
		p, err := l.opt.Processes.Process(ctx, sandbox, process)
		if err != nil {
			return err
		}
		if p.Terminal == nil {
			return hutch.Errorf(hutch.Unsupported, "the process %s has no terminal to share: start it with one", process)
		}
		if h := l.opt.Holder(who.Owner); h == nil || h.ID != who.ID {
			return hutch.Errorf(hutch.Unsupported, "a link ends with the token that made it, and you signed in without one of this server: sign in with a token to share a terminal")
		}
		made, err := l.made(ctx, sandbox)
		if err != nil {
			return err
		}
		now := time.Now().UTC()
		secret := rand.Text() + rand.Text()
		e := newEntry(sha256.Sum256([]byte(secret)), record{Owner: who.Owner, Made: made, TerminalLink: hutch.TerminalLink{
			ID: hutch.NewID("wl"), SandboxID: sandbox, ProcessID: process, CreatedAt: now, ExpiresAt: now.Add(cmp.Or(lifetime.Duration(), usualTime)).Truncate(time.Second),
		}})
		shared = hutch.SharedTerminal{TerminalLink: e.record.TerminalLink, Path: "/watch#" + secret}
		return l.add(ctx, e)
	})
	if err != nil {
		return hutch.SharedTerminal{}, err
	}
	return shared, nil
}

// made returns when the caller's sandbox with an id was created.
func (l *Links) made(ctx context.Context, sandbox string) (time.Time, error) {
	list, err := l.opt.Processes.Sandboxes(caller.Unmetered(ctx), hutch.Filter{ID: sandbox, Brief: true})
	if err == nil && len(list) == 0 {
		err = hutch.Errorf(hutch.NotFound, "there is no sandbox %q", sandbox)
	}
	if err != nil {
		return time.Time{}, err
	}
	return list[0].CreatedAt, nil
}

func (l *Links) add(ctx context.Context, e *entry) error {
	doc, err := json.Marshal(e.record)
	if err != nil {
		return err
	}
	return l.stored.Change(ctx, func(d *store.Draft) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tidyLocked(d)
		count := 0
		for _, other := range l.byKey {
			if other.record.Owner == e.record.Owner && !other.expired() {
				count++
			}
		}
		if count >= maxLinks {
			return hutch.Errorf(hutch.Exhausted, "there are %d links to terminals of this token, its limit: revoke some, or wait until they expire", maxLinks).With("limit", "links")
		}
		d.Put(e.name(), doc)
		return nil
	})
}

// List returns the caller's links to a terminal, oldest first.
func (l *Links) List(ctx context.Context, sandbox, process string) ([]hutch.TerminalLink, error) {
	who, err := own(ctx, "TerminalLinks")
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []hutch.TerminalLink{}
	for _, e := range l.byKey {
		if e.of(who.Owner, sandbox, process) && !e.expired() {
			list = append(list, e.record.TerminalLink)
		}
	}
	slices.SortFunc(list, func(a, b hutch.TerminalLink) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, nil
}

// name returns the key of the link's document.
func (e *entry) name() string { return hex.EncodeToString(e.key[:]) }

func (e *entry) expired() bool { return !time.Now().Before(e.record.ExpiresAt) }

func (e *entry) of(owner, sandbox, process string) bool {
	return e.record.Owner == owner && e.record.SandboxID == sandbox && e.record.ProcessID == process
}

var errRevoked = hutch.Errorf(hutch.Denied, "the link to this terminal was revoked")

// Revoke revokes a link and disconnects its viewers. Revoking a missing link is not an error.
func (l *Links) Revoke(ctx context.Context, sandbox, process, id string) error {
	return l.recorded(ctx, "UnshareTerminal", sandbox, process, func(ctx context.Context, who *caller.Principal) error {
		return l.stored.Change(ctx, func(d *store.Draft) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, e := range l.byKey {
				if e.of(who.Owner, sandbox, process) && e.record.ID == id {
					d.Delete(e.name())
				}
			}
			return nil
		})
	})
}

// tidyLocked removes the links that have expired.
func (l *Links) tidyLocked(d *store.Draft) {
	for _, e := range l.byKey {
		if e.expired() {
			d.Delete(e.name())
		}
	}
}

// errNoLink is the same error for every link that does not work: it never existed, has expired or was revoked, or its token
// or sandbox has ended.
var errNoLink = hutch.Errorf(hutch.NotFound, "the link leads to no terminal: it is wrong, has expired or was revoked, or the terminal has gone. Ask its sender for a new one")

var errExpired = hutch.Errorf(hutch.Denied, "the link to this terminal has expired: ask its sender for a new one")

// Watch returns the terminal of a link, and a context for reading it in the name of the link's maker. The context ends
// with the link and its token. Call done after the last read.
func (l *Links) Watch(ctx context.Context, secret string) (_ context.Context, link hutch.TerminalLink, done func(), err error) {
	e, who, err := l.enter(secret)
	if err != nil {
		return nil, link, nil, err
	}
	if !l.opt.Claim(ctx, e.record.Owner) {
		l.leave(e)
		return nil, link, nil, errCrowded
	}
	c := caller.From(ctx)
	c.Origin.Surface = Surface
	ctx = caller.OwnOnly(caller.Unmetered(caller.As(caller.With(ctx, c), who)))
	ctx, end := caller.Until(ctx, e.life)
	ctx, late := context.WithDeadlineCause(ctx, e.record.ExpiresAt, errExpired)
	ctx, release := who.Hold(ctx)
	done = func() {
		release()
		late()
		end()
		l.leave(e)
	}
	made, err := l.made(ctx, e.record.SandboxID)
	if err == nil && !made.Equal(e.record.Made) || errors.Is(err, hutch.NotFound) {
		err = errNoLink
	}
	if err != nil {
		done()
		return nil, link, nil, err
	}
	return ctx, e.record.TerminalLink, done, nil
}

var errCrowded = hutch.Errorf(hutch.Exhausted, "as many watch now as can by links of this token: try again in a minute").With("limit", "viewers").With("retryAfter", 60)

// enter counts a viewer of a link, and returns the link and its owner.
func (l *Links) enter(secret string) (*entry, *caller.Principal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, now := l.byKey[sha256.Sum256([]byte(secret))], time.Now()
	if e == nil || !now.Before(e.record.ExpiresAt) {
		return nil, nil, errNoLink
	}
	who := l.opt.Holder(e.record.Owner)
	if who == nil {
		return nil, nil, errNoLink
	}
	if now.Sub(e.minute) >= time.Minute {
		e.minute, e.opens = now, 0
	}
	if e.opens++; e.viewers >= maxViewers || e.opens > maxOpens {
		return nil, nil, errCrowded
	}
	e.viewers++
	return e, who, nil
}

func (l *Links) leave(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.viewers--
}

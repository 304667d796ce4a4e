package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/store"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// grants holds all grants. A token has at most one grant on a sandbox id, so an id means one sandbox to its caller.
type grants struct {
	stored *store.Mirror

	mu      sync.RWMutex
	byToken map[string]map[string]grant // by token, then by sandbox id
	count   int
}

// grant is a hutch.Grant on one particular sandbox: it does not apply to a later sandbox with the same id.
type grant struct {
	hutch.Grant
	Made time.Time `json:"made"` // when the sandbox was created

	// life ends when the grant is withdrawn or allows less than before: everything that was opened with the grant then
	// ends too.
	life context.Context
	end  context.CancelCauseFunc
}

var errWithdrawn = hutch.Errorf(hutch.Denied, "the owner of the sandbox has ended or restricted your access to it while this was under way: ask its owner")

// mostGrants bounds the number of all grants.
const mostGrants = 10_000

func openGrants(ctx context.Context, collection *store.Collection) (l *grants, err error) {
	l = &grants{byToken: map[string]map[string]grant{}}
	l.stored, err = store.OpenMirror(ctx, collection, l.apply)
	return l, err
}

// apply stores the grant in a document in memory. If doc is nil, it removes the grant.
func (l *grants) apply(key string, doc []byte) error {
	var g grant
	if doc != nil {
		if err := json.Unmarshal(doc, &g); err != nil {
			return fmt.Errorf("read grant %s: %w", key, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if doc != nil {
		l.putLocked(g)
		return nil
	}
	token, sandbox, _ := strings.Cut(key, "/") // ids of tokens have no slash
	g, ok := l.byToken[token][sandbox]
	if !ok {
		return nil
	}
	g.end(errWithdrawn)
	delete(l.byToken[token], sandbox)
	if len(l.byToken[token]) == 0 {
		delete(l.byToken, token)
	}
	l.count--
	return nil
}

func (g grant) key() string { return g.Token + "/" + g.SandboxID }

func (l *grants) putLocked(g grant) {
	of := l.byToken[g.Token]
	if of == nil {
		of = map[string]grant{}
		l.byToken[g.Token] = of
	}
	old, again := of[g.SandboxID]
	if !again {
		l.count++
	}
	if again && old.Owner == g.Owner && old.Made.Equal(g.Made) && (old.Access == g.Access || g.Access == hutch.WriteAccess) {
		g.life, g.end = old.life, old.end
	} else {
		if again {
			old.end(errWithdrawn)
		}
		g.life, g.end = context.WithCancelCause(context.Background())
	}
	of[g.SandboxID] = g
}

// find returns a token's grant on a sandbox id.
func (l *grants) find(token, sandbox string) (grant, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	g, ok := l.byToken[token][sandbox]
	return g, ok
}

// of lists the grants of a token.
func (l *grants) of(token string) []grant {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.byToken[token]))
}

// on lists the grants on an owner's sandbox.
func (l *grants) on(owner, sandbox string) []grant {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var list []grant
	for _, of := range l.byToken {
		if g, ok := of[sandbox]; ok && g.Owner == owner {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b grant) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Token, b.Token)) })
	return list
}

func (l *grants) add(ctx context.Context, g grant) error {
	return l.stored.Change(ctx, func(d *store.Draft) error {
		l.mu.RLock()
		defer l.mu.RUnlock()
		old, again := l.byToken[g.Token][g.SandboxID]
		switch {
		case again && old.Owner != g.Owner:
			return hutch.Errorf(hutch.Conflict, "the token %q has been granted another sandbox %q: share one with another id", g.TokenName, g.SandboxID)
		case !again && l.count >= mostGrants:
			return hutch.Errorf(hutch.Exhausted, "there are %d grants, which is the most: end some", mostGrants).With("limit", "grants")
		}
		doc, err := json.Marshal(g)
		d.Put(g.key(), doc)
		return err
	})
}

// remove deletes a grant, unless it was replaced meanwhile.
func (l *grants) remove(ctx context.Context, g grant) error {
	return l.stored.Change(context.WithoutCancel(ctx), func(d *store.Draft) error {
		l.mu.RLock()
		defer l.mu.RUnlock()
		if now, ok := l.byToken[g.Token][g.SandboxID]; ok && now.Owner == g.Owner && now.Made.Equal(g.Made) {
			d.Delete(g.key())
		}
		return nil
	})
}

// owner returns the owner on whose behalf a call is made. For a shared sandbox this is the sandbox's owner, and life is
// done when the grant ends. Otherwise it is the caller, and life is nil.
func (p *Policy) owner(ctx context.Context, who *caller.Principal, c verb.Call, v verb.Verb) (_ caller.Owner, life context.Context, err error) {
	me := who.Self()
	g, ok := p.grants.find(who.ID, c.Sandbox)
	if !ok || v.About == verb.Owner || caller.From(ctx).OwnOnly {
		return me, nil, nil
	}
	if _, err := p.record(ctx, me, c.Sandbox); !errors.Is(err, hutch.NotFound) {
		return me, nil, nil // the caller's own sandbox comes first
	}
	if _, err := p.shared(ctx, g); err != nil {
		return me, nil, nil
	}
	switch {
	case v.Access == "":
		return me, nil, hutch.Errorf(hutch.Denied, "the sandbox %q is shared with you: only its owner may do this", c.Sandbox)
	case v.Access == hutch.WriteAccess && g.Access != hutch.WriteAccess:
		return me, nil, hutch.Errorf(hutch.Denied, "the sandbox %q is shared with you to read only: ask its owner to share it with write access", c.Sandbox)
	}
	if c.Secrets { // a call can read the secrets that it is given
		return me, nil, hutch.Errorf(hutch.Denied, "the sandbox %q is shared with you, and its owner's secrets are not: leave out secrets, or use a sandbox of your own", c.Sandbox).Naming(hutch.AboutField, "secrets")
	}
	return caller.Owner{ID: g.Owner}, g.life, nil
}

// Granted reports whether an owner's sandbox is shared with a token. life is done when the grant ends.
func (p *Policy) Granted(token, owner, sandbox string) (life context.Context, ok bool) {
	g, ok := p.grants.find(token, sandbox)
	return g.life, ok && g.Owner == owner
}

// bind makes the result of a call end with a grant, if the result is a connection, which outlives the call.
func bind(life context.Context, result any) {
	if conn, ok := result.(*net.Conn); ok && *conn != nil && life != nil {
		inner := *conn
		*conn = grantedConn{inner, context.AfterFunc(life, func() { inner.Close() })}
	}
}

// grantedConn is a connection that is closed when a grant ends.
type grantedConn struct {
	net.Conn
	stop func() bool
}

func (c grantedConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// CloseWrite ends the sending side of the connection, as DialPort promises.
func (c grantedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// record returns the record of an owner's sandbox, without a call to the sandbox itself.
func (p *Policy) record(ctx context.Context, owner caller.Owner, id string) (hutch.Sandbox, error) {
	list, err := p.next.Sandboxes(caller.WithOwner(ctx, owner), hutch.Filter{ID: id, Brief: true})
	if err == nil && len(list) == 0 {
		err = hutch.Errorf(hutch.NotFound, "there is no sandbox %q", id)
	}
	if err != nil {
		return hutch.Sandbox{}, err
	}
	return list[0], nil
}

// shared returns the record of a grant's sandbox, if that is still the same sandbox as when it was shared.
func (p *Policy) shared(ctx context.Context, g grant) (hutch.Sandbox, error) {
	sb, err := p.record(ctx, caller.Owner{ID: g.Owner}, g.SandboxID)
	if err == nil && !sb.CreatedAt.Equal(g.Made) {
		err = hutch.Errorf(hutch.NotFound, "the sandbox %q is not the one that was shared", g.SandboxID)
	}
	if errors.Is(err, hutch.NotFound) {
		if err := p.grants.remove(ctx, g); err != nil {
			p.opt.Log.Warn("forget a grant on a sandbox that is gone", "sandbox", g.SandboxID, "token", g.Token, "err", err)
		}
	}
	return sb, err
}

// list returns the caller's own sandboxes and those that others have shared with it, oldest first.
func (p *Policy) list(ctx context.Context, who *caller.Principal, f hutch.Filter) ([]hutch.Sandbox, error) {
	all, err := p.next.Sandboxes(ctx, f)
	if err != nil || caller.From(ctx).OwnOnly {
		return all, err
	}
	for _, g := range p.grants.of(who.ID) {
		sb, err := p.shared(ctx, g)
		mine := func(own hutch.Sandbox) bool { return own.ID == g.SandboxID }
		if err != nil || !f.Match(sb) || slices.ContainsFunc(all, mine) {
			continue
		}
		if !f.Brief {
			sb, err = p.next.Sandbox(caller.WithOwner(ctx, caller.Owner{ID: g.Owner}), g.SandboxID)
		}
		if err == nil {
			all = append(all, sb)
		}
	}
	slices.SortStableFunc(all, func(a, b hutch.Sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// Share implements hutch.Sharing.
func (p *Policy) Share(ctx context.Context, sandbox, token string, access hutch.Access) (hutch.Grant, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Share", Sandbox: sandbox, Target: token}, func(ctx context.Context) (hutch.Grant, error) {
		if access != hutch.ReadAccess && access != hutch.WriteAccess {
			return hutch.Grant{}, hutch.Errorf(hutch.Invalid, "there is no access %.40q: use %q or %q", access, hutch.ReadAccess, hutch.WriteAccess).Naming(hutch.AboutField, "access")
		}
		sb, err := p.next.Sandbox(ctx, sandbox)
		if err != nil {
			return hutch.Grant{}, err
		}
		to, err := p.grantee(ctx, token)
		if err != nil {
			return hutch.Grant{}, err
		}
		g := hutch.Grant{SandboxID: sandbox, Owner: sb.Owner, Token: to.ID, TokenName: to.Name, Access: access, CreatedAt: time.Now().UTC()}
		return g, p.grants.add(ctx, grant{Grant: g, Made: sb.CreatedAt})
	})
}

// grantee returns the token to share with. It must be live and belong to another owner.
func (p *Policy) grantee(ctx context.Context, token string) (hutch.Token, error) {
	if p.opt.Tokens == nil {
		return hutch.Token{}, hutch.Errorf(hutch.Unsupported, "this server has no tokens to share with")
	}
	t, err := p.opt.Tokens.Token(ctx, token)
	switch {
	case err != nil || !t.Live(time.Now()):
		return hutch.Token{}, hutch.Errorf(hutch.NotFound, "there is no live token %.80q to share with: ask its owner for the name of the token", token).With("token", token)
	case t.ID == caller.From(ctx).Principal.ID:
		return hutch.Token{}, hutch.Errorf(hutch.Invalid, "the token %q is your own: it may use the sandbox already", t.Name)
	}
	return t, nil
}

// Unshare implements hutch.Sharing.
func (p *Policy) Unshare(ctx context.Context, sandbox, token string) error {
	return wrap.AroundError(ctx, p.around, verb.Call{Verb: "Unshare", Sandbox: sandbox, Target: token}, func(ctx context.Context) error {
		for _, g := range p.grants.on(caller.From(ctx).Principal.Owner, sandbox) {
			if g.Token == token || g.TokenName == token {
				return p.grants.remove(ctx, g)
			}
		}
		return nil
	})
}

// Grants implements hutch.Sharing.
func (p *Policy) Grants(ctx context.Context, sandbox string) ([]hutch.Grant, error) {
	return wrap.Around(ctx, p.around, verb.Call{Verb: "Grants", Sandbox: sandbox}, func(ctx context.Context) ([]hutch.Grant, error) {
		sb, err := p.next.Sandbox(ctx, sandbox)
		if err != nil {
			return nil, err
		}
		list := []hutch.Grant{}
		for _, g := range p.grants.on(sb.Owner, sandbox) {
			if g.Made.Equal(sb.CreatedAt) {
				list = append(list, g.Grant)
			}
		}
		return list, nil
	})
}

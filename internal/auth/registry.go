package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/store"
)

// Defaults returns the limits of a token that sets no limits.
func Defaults() hutch.TokenLimits {
	return hutch.TokenLimits{Requests: 100, Operations: 1000, Sandboxes: 10}
}

var (
	errRevoked = hutch.Errorf(hutch.Denied, "the token was revoked while this was under way: ask for a new one")
	errClosing = hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
)

// Options configure a registry; the zero value accepts no token.
type Options struct {
	// Collection is where tokens are stored; nil keeps them in memory only.
	Collection *store.Collection
	// Local is a token with every scope. It was not created in this registry, belongs to the server itself, and is not
	// listed.
	Local string
	// LocalLimits are the limits of Local. A limit of 0 means no limit if LocalFree is set, and otherwise the limit of
	// Defaults.
	LocalLimits hutch.TokenLimits
	LocalFree   bool
	// Defaults replace the limits of a token that are 0. If a limit is 0 here too, the limit of the package's Defaults
	// applies.
	Defaults hutch.TokenLimits
	// Issuer identifies people; nil for none.
	Issuer *Issuer
	Log    *slog.Logger
}

// Registry has every token. It implements hutch.Tokens without checking the caller: package policy does that. A token
// in memory changes only after its document has changed, on this server or another.
type Registry struct {
	opt    Options
	local  *entry
	stored *store.Mirror

	mu     sync.RWMutex
	byID   map[string]*entry
	byHash map[hash]*entry // live tokens, and some expired ones
}

var _ hutch.Tokens = (*Registry)(nil)

type hash [sha256.Size]byte

// entry is one token. The registry's mutex guards its fields.
type entry struct {
	record
	who *caller.Principal // principal of the token's present secret
	end context.CancelCauseFunc
}

// record is the stored form of a token.
type record struct {
	hutch.Token
	Hash []byte `json:"sha256"`
}

// Open returns a registry of the tokens in its collection.
func Open(ctx context.Context, opt Options) (*Registry, error) {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	opt.Defaults = limits(opt.Defaults, Defaults())
	r := &Registry{opt: opt, byID: map[string]*entry{}, byHash: map[hash]*entry{}}
	if opt.Local != "" {
		r.addLocal()
	}
	return r, r.load(ctx)
}

// localID is the id and the name of the local token.
const localID = "local"

func (r *Registry) addLocal() {
	sum, others := sha256.Sum256([]byte(r.opt.Local)), r.opt.Defaults
	if r.opt.LocalFree {
		others = caller.Unlimited
	}
	r.local = &entry{record: record{
		Token: hutch.Token{ID: localID, Name: localID, Scopes: hutch.Scopes, Limits: limits(r.opt.LocalLimits, others)},
		Hash:  sum[:],
	}}
	r.enterLocked(r.local)
	r.local.who.Owner = ""
}

// forget is how long an ended token is still listed.
const forget = 90 * 24 * time.Hour

func (r *Registry) load(ctx context.Context) (err error) {
	if r.stored, err = store.OpenMirror(ctx, r.opt.Collection, r.apply); err != nil {
		return err
	}
	var old []string
	r.mu.RLock() // other servers can already change tokens
	for id, e := range r.byID {
		if !e.Live(time.Now().Add(-forget)) && (e.RevokedAt == nil || time.Since(*e.RevokedAt) > forget) {
			old = append(old, id)
		}
	}
	r.mu.RUnlock()
	if len(old) == 0 {
		return nil
	}
	return r.stored.Change(ctx, func(d *store.Draft) error {
		for _, id := range old {
			d.Delete(id)
		}
		return nil
	})
}

// apply updates a token in memory from its document. The token can be new, have another secret, be revoked, or be
// deleted.
func (r *Registry) apply(id string, doc []byte) error {
	var rec record
	if doc != nil {
		if err := json.Unmarshal(doc, &rec); err != nil || len(rec.Hash) != len(hash{}) {
			return fmt.Errorf("read token %s: %w", id, cmp.Or(err, fmt.Errorf("its hash has %d bytes", len(rec.Hash))))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byID[id]
	if e != nil && doc != nil && e.RevokedAt != nil && rec.RevokedAt == nil {
		return nil // the token was revoked here although that could not be stored
	}
	if e != nil && doc != nil && bytes.Equal(e.Hash, rec.Hash) && (e.RevokedAt == nil) == (rec.RevokedAt == nil) {
		if rec.LastUsedAt == nil || e.LastUsedAt != nil && e.LastUsedAt.After(*rec.LastUsedAt) {
			rec.LastUsedAt = e.LastUsedAt
		}
		e.record = rec
		return nil
	}
	if e != nil {
		r.endLocked(e, errRevoked)
		delete(r.byID, id)
	}
	if doc != nil {
		r.enterLocked(&entry{record: rec})
	}
	return nil
}

// enterLocked indexes a token by its present hash.
func (r *Registry) enterLocked(e *entry) {
	life, end := context.WithCancelCause(context.Background())
	e.end = end
	e.who = &caller.Principal{ID: e.ID, Name: e.Name, Owner: e.ID, Scopes: e.Scopes, Limits: limits(e.Limits, r.opt.Defaults), Network: e.Network, Registries: e.Registries, Life: life}
	if e.ExpiresAt != nil {
		e.who.Expires = *e.ExpiresAt
	}
	if e != r.local {
		r.byID[e.ID] = e
	}
	if e.RevokedAt == nil {
		r.byHash[hash(e.Hash)] = e
	}
}

// endLocked invalidates the present secret of a token, and ends all work for it.
func (r *Registry) endLocked(e *entry, cause error) {
	delete(r.byHash, hash(e.Hash))
	e.end(cause)
}

// Close ends all work for any token.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.byHash {
		e.end(errClosing)
	}
	return nil
}

// limits returns l, with fields that are zero replaced by those of other.
func limits(l, other hutch.TokenLimits) hutch.TokenLimits {
	return hutch.TokenLimits{
		Requests:   cmp.Or(l.Requests, other.Requests),
		Operations: cmp.Or(l.Operations, other.Operations),
		Sandboxes:  cmp.Or(l.Sandboxes, other.Sandboxes),
	}
}

// invalid is the same error for every token that is not accepted, whatever the reason.
var invalid = hutch.Errorf(hutch.Denied, "the token is not valid here: it may be mistyped, expired, revoked or another server's")

// Check returns the principal of a token. If the token is not valid, the error is of kind Denied.
func (r *Registry) Check(ctx context.Context, token string) (*caller.Principal, error) {
	who := r.CheckSum(ctx, sumOf(token))
	switch {
	case who == nil && r.opt.Issuer != nil && isJWT(token):
		return r.opt.Issuer.check(ctx, token, r.opt.Defaults)
	case who == nil:
		return nil, invalid
	}
	return who, nil
}

// sumOf returns the sum of a token for CheckSum.
func sumOf(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// CheckSum returns the principal of a live token of this registry by the token's SHA-256, or nil if there is no such
// token. Sessions use it, because they outlive the request with the token and do not store the token.
func (r *Registry) CheckSum(ctx context.Context, sum [sha256.Size]byte) *caller.Principal {
	now := time.Now()
	r.mu.RLock()
	e := r.byHash[sum]
	var who *caller.Principal
	var stale bool
	if e != nil && e.Live(now) {
		who = e.who
		stale = e.LastUsedAt == nil || now.Sub(*e.LastUsedAt) >= coarse
	}
	r.mu.RUnlock()
	if stale && e != r.local {
		r.used(ctx, e, now)
	}
	return who
}

// Holder returns the principal of an owner's live token, or nil if the owner has no token here, as for people of an
// issuer.
func (r *Registry) Holder(owner string) *caller.Principal {
	if e := r.live(owner); e != nil {
		return e.who
	}
	return nil
}

// Sum returns the SHA-256 of the present secret of an owner's live token, or nil if there is none.
func (r *Registry) Sum(owner string) []byte {
	if e := r.live(owner); e != nil {
		return e.Hash
	}
	return nil
}

// live returns an owner's live token, or nil.
func (r *Registry) live(owner string) *entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.byID[owner]
	if owner == "" {
		e = r.local
	}
	if e == nil || !e.Live(time.Now()) {
		return nil
	}
	return e
}

// coarse is the precision of a token's last use: writing the time at each call would take longer than the call.
const coarse = 10 * time.Minute

// noteTime is how long a call waits at most for the use of its token to be stored.
const noteTime = 2 * time.Second

func (r *Registry) used(ctx context.Context, e *entry, now time.Time) {
	now = now.UTC().Truncate(time.Second)
	r.mu.Lock()
	first := e.LastUsedAt == nil || now.Sub(*e.LastUsedAt) >= coarse
	if first {
		e.LastUsedAt = &now
	}
	r.mu.Unlock()
	if !first || r.stored == nil {
		return // another call has stored the use, or tokens are not stored at all
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	err := r.stored.Change(ctx, func(d *store.Draft) error {
		r.mu.RLock()
		defer r.mu.RUnlock()
		e := r.byID[e.ID]
		if e == nil {
			return nil
		}
		rec := e.record
		rec.LastUsedAt = &now
		return put(d, rec)
	})
	if err != nil {
		r.opt.Log.Warn("note the use of a token", "token", e.ID, "err", err)
	}
}

func put(d *store.Draft, rec record) error {
	doc, err := json.Marshal(rec)
	d.Put(rec.ID, doc)
	return err
}

// newSecret creates a secret. With its prefix, scanners can find leaked secrets.
func newSecret() (secret string, sum hash) {
	var b [32]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	secret = Prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
	return secret, sha256.Sum256([]byte(secret))
}

// Prefix is the prefix of every token.
const Prefix = "hutch_"

// NewSecret mints a token that is not registered yet.
func NewSecret() string {
	secret, _ := newSecret()
	return secret
}

// show returns the public record of a token.
func (r *Registry) show(rec record) hutch.Token {
	t := rec.Token
	t.Scopes, t.Limits = slices.Clone(t.Scopes), limits(t.Limits, r.opt.Defaults)
	return t
}

// sortedLocked lists the tokens, oldest first.
func (r *Registry) sortedLocked() []*entry {
	all := slices.Collect(maps.Values(r.byID))
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all
}

package auth

import (
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
	"hutch/internal/store"
)

// Defaults are the limits of a token that sets none.
var Defaults = hutch.TokenLimits{Requests: 100, Operations: 1000, Sandboxes: 10}

// None are the limits of a token that has none.
var None = hutch.TokenLimits{Requests: hutch.Unlimited, Operations: hutch.Unlimited, Sandboxes: hutch.Unlimited}

// Options are what a registry is made from; the zero value lets no one in.
type Options struct {
	// Shelf is where tokens are kept; nil is in memory alone.
	Shelf *store.Shelf
	// Local is a token that is known without having been created, with every
	// scope. It stands for the server itself, and is not listed.
	Local string
	// LocalLimits are its limits. Where 0, LocalFree decides: it then has none,
	// and else those of Defaults.
	LocalLimits hutch.TokenLimits
	LocalFree   bool
	// Defaults stand in for limits of tokens that are 0; where 0 too, those of
	// the package.
	Defaults hutch.TokenLimits
	// Issuer vouches for people; nil for none.
	Issuer *Issuer
	Log    *slog.Logger
}

// Registry knows every token. It implements hutch.Tokens, and asks nobody's
// leave: package policy stands in front of it.
type Registry struct {
	opt   Options
	local *entry

	mu     sync.RWMutex
	byID   map[string]*entry
	byHash map[hash]*entry // of live tokens, and some that have expired
}

var _ hutch.Tokens = (*Registry)(nil)

type hash [sha256.Size]byte

// entry is one token. Its fields belong to the registry's mutex.
type entry struct {
	record
	who *Principal // of its present secret
	end context.CancelCauseFunc
}

// record is a token as it is kept.
type record struct {
	hutch.Token
	Hash []byte `json:"sha256"`
}

// Open returns a registry of the tokens that its shelf has.
func Open(ctx context.Context, opt Options) (*Registry, error) {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	opt.Defaults = limits(opt.Defaults, Defaults)
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
		others = None
	}
	r.local = &entry{record: record{
		Token: hutch.Token{ID: localID, Name: localID, Scopes: hutch.Scopes, Limits: limits(r.opt.LocalLimits, others)},
		Hash:  sum[:],
	}}
	r.enterLocked(r.local)
	r.local.who.Owner = ""
}

// forget is how long a token that has ended is still listed.
const forget = 90 * 24 * time.Hour

func (r *Registry) load(ctx context.Context) error {
	if r.opt.Shelf == nil {
		return nil
	}
	docs, err := r.opt.Shelf.All(ctx)
	if err != nil {
		return err
	}
	for id, doc := range docs {
		e := &entry{}
		if err := json.Unmarshal(doc, &e.record); err != nil || len(e.Hash) != len(hash{}) {
			return fmt.Errorf("read token %s: %w", id, cmp.Or(err, fmt.Errorf("its hash has %d bytes", len(e.Hash))))
		}
		if !e.Live(time.Now().Add(-forget)) && (e.RevokedAt == nil || time.Since(*e.RevokedAt) > forget) {
			if err := r.opt.Shelf.Delete(ctx, id); err != nil {
				return err
			}
			continue
		}
		r.enterLocked(e)
	}
	return nil
}

// enterLocked makes a token known, under its present hash.
func (r *Registry) enterLocked(e *entry) {
	life, end := context.WithCancelCause(context.Background())
	e.end = end
	e.who = &Principal{ID: e.ID, Name: e.Name, Owner: e.ID, Scopes: e.Scopes, Limits: limits(e.Limits, r.opt.Defaults), Network: e.Network, life: life}
	if e.ExpiresAt != nil {
		e.who.expires = *e.ExpiresAt
	}
	if e != r.local {
		r.byID[e.ID] = e
	}
	if e.RevokedAt == nil {
		r.byHash[hash(e.Hash)] = e
	}
}

// endLocked takes back the present secret of a token, and ends what is under
// way for it.
func (r *Registry) endLocked(e *entry, cause error) {
	delete(r.byHash, hash(e.Hash))
	e.end(cause)
}

// Close ends what is under way for anyone.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.byHash {
		e.end(errClosing)
	}
	return nil
}

// limits are l, with those of other where they are 0.
func limits(l, other hutch.TokenLimits) hutch.TokenLimits {
	return hutch.TokenLimits{
		Requests:   cmp.Or(l.Requests, other.Requests),
		Operations: cmp.Or(l.Operations, other.Operations),
		Sandboxes:  cmp.Or(l.Sandboxes, other.Sandboxes),
	}
}

// invalid says the same of every token that opens nothing, whatever the reason.
var invalid = hutch.Errorf(hutch.Denied, "the token is not valid here: it may be mistyped, expired, revoked or another server's")

// Check returns whose token it is, or Denied.
func (r *Registry) Check(ctx context.Context, token string) (*Principal, error) {
	sum := sha256.Sum256([]byte(token))
	now := time.Now()
	r.mu.RLock()
	e := r.byHash[sum]
	var who *Principal
	var stale bool
	if e != nil && e.Live(now) {
		who = e.who
		stale = e.LastUsedAt == nil || now.Sub(*e.LastUsedAt) >= coarse
	}
	r.mu.RUnlock()
	switch {
	case who == nil && r.opt.Issuer != nil && isJWT(token):
		return r.opt.Issuer.check(ctx, token, r.opt.Defaults)
	case who == nil:
		return nil, invalid
	}
	if stale && e != r.local {
		r.used(ctx, e, now)
	}
	return who, nil
}

// coarse is how exact the time of a token's last use is: writing it each time
// would cost more than the call.
const coarse = 10 * time.Minute

func (r *Registry) used(ctx context.Context, e *entry, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.LastUsedAt != nil && now.Sub(*e.LastUsedAt) < coarse {
		return // another call was first
	}
	now = now.UTC().Truncate(time.Second)
	e.LastUsedAt = &now
	if err := r.save(context.WithoutCancel(ctx), e.record); err != nil {
		r.opt.Log.Warn("note the use of a token", "token", e.ID, "err", err)
	}
}

func (r *Registry) save(ctx context.Context, rec record) error {
	if r.opt.Shelf == nil {
		return nil
	}
	doc, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return r.opt.Shelf.Put(ctx, rec.ID, doc)
}

// mint makes a secret. Its prefix lets scanners find one that has leaked.
func mint() (secret string, sum hash) {
	var b [32]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	secret = Prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
	return secret, sha256.Sum256([]byte(secret))
}

// Prefix begins every token.
const Prefix = "hutch_"

// NewSecret mints a token that nobody knows of yet.
func NewSecret() string {
	secret, _ := mint()
	return secret
}

// show is what is told of a token.
func (r *Registry) show(e *entry) hutch.Token {
	t := e.Token
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

// Only returns a check that knows some tokens, each with every scope and
// without limits.
func Only(tokens ...string) func(context.Context, string) (*Principal, error) {
	r := &Registry{opt: Options{LocalFree: true}, byHash: map[hash]*entry{}}
	for _, token := range tokens {
		if token != "" { // or an absent token would be one
			r.opt.Local = token
			r.addLocal()
		}
	}
	return r.Check
}

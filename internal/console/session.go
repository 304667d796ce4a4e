package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
)

const (
	// idle is how long a session lasts without a request.
	idle = 12 * time.Hour
	// longest is how long a session lasts at most.
	longest = 7 * 24 * time.Hour
	// coarse is the precision of the stored time of the last request.
	coarse = 10 * time.Minute
	// maxOwn is how many sessions one token or person has; a further one ends the one unused for longest.
	maxOwn = 20
	// maxSessions bounds the memory.
	maxSessions = 10_000
)

// Tokens knows the tokens that people sign in by.
type Tokens interface {
	// Check returns the principal of a token; its error is of kind Denied when the token is not valid.
	Check(ctx context.Context, token string) (*caller.Principal, error)
	// CheckSum returns the principal of a live token of this server by the token's SHA-256, and nil for none.
	CheckSum(ctx context.Context, sum [sha256.Size]byte) *caller.Principal
}

// Shelf is where sessions are stored.
type Shelf interface {
	Put(ctx context.Context, key string, doc []byte) error
	Delete(ctx context.Context, key string) error
	All(ctx context.Context) (map[string][]byte, error)
}

// sessions are the browsers that are signed in. The server keeps neither the cookie nor the token of a session, but
// the SHA-256 of each: whoever reads the store can use neither.
type sessions struct {
	tokens Tokens
	shelf  Shelf // nil for none
	log    *slog.Logger

	mu   sync.Mutex
	byID map[hash]*session
}

type hash [sha256.Size]byte

// session is one browser that is signed in. The mutex of sessions guards its fields.
type session struct {
	key hash
	record
	saved time.Time               // the time of use that is stored
	end   context.CancelCauseFunc // of the life of who

	base *caller.Principal // what who was made of
	who  *caller.Principal // whose life ends with the session
}

// record is the stored form of a session: of a token of this server, or of a person that an issuer vouched for.
type record struct {
	Token   []byte    `json:"tokenSha256,omitempty"`
	Person  *person   `json:"person,omitempty"`
	Of      string    `json:"of"`               // the id of the principal
	Secure  bool      `json:"secure,omitempty"` // the browser was told to send the cookie over TLS only
	Created time.Time `json:"createdAt"`
	Used    time.Time `json:"usedAt"`
}

// person is the stored form of the principal of a person.
type person struct {
	Name     string            `json:"name"`
	Scopes   []hutch.Scope     `json:"scopes"`
	Limits   hutch.TokenLimits `json:"limits"`
	Metadata string            `json:"metadata,omitempty"`
	Expires  time.Time         `json:"expiresAt,omitzero"`
}

// cookie is the value of a session's cookie.
type cookie [32]byte

func (c cookie) String() string { return base64.RawURLEncoding.EncodeToString(c[:]) }

// key is what the server knows the session of a cookie by.
func (c cookie) key() hash { return sha256.Sum256(c[:]) }

// csrf is what a page shows beside its cookie. It follows from the cookie and says nothing about it; a page of another
// site can make the browser send the cookie, and cannot read this.
func (c cookie) csrf() string {
	sum := sha256.Sum256(append([]byte("hutch csrf "), c[:]...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

var errSignedOut = hutch.Errorf(hutch.Denied, "the session ended while this was under way: sign in again")

// openSessions reads the sessions that are stored, and removes those that have ended.
func openSessions(ctx context.Context, tokens Tokens, shelf Shelf, log *slog.Logger) (*sessions, error) {
	s := &sessions{tokens: tokens, shelf: shelf, log: log, byID: map[hash]*session{}}
	if shelf == nil {
		return s, nil
	}
	docs, err := shelf.All(ctx)
	if err != nil {
		return nil, err
	}
	for name, doc := range docs {
		x := &session{}
		key, err := hex.DecodeString(name)
		if err := errors.Join(err, json.Unmarshal(doc, &x.record)); err != nil || len(key) != len(x.key) {
			return nil, fmt.Errorf("read the session %.16s: %w", name, cmp.Or(err, errors.New("its key is not a hash")))
		}
		x.key, x.saved = hash(key), x.Used
		s.byID[x.key] = x
		if s.principalLocked(ctx, x) == nil {
			s.removeLocked(ctx, x)
		}
	}
	return s, nil
}

// create begins a session. It ends the oldest one of the principal that has too many.
func (s *sessions) create(ctx context.Context, rec record) (cookie, *session, error) {
	var c cookie
	rand.Read(c[:]) // never fails: it ends the program instead
	now := time.Now().UTC()
	rec.Created, rec.Used = now, now
	x := &session{key: c.key(), record: rec, saved: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoomLocked(ctx, rec.Of)
	if len(s.byID) >= maxSessions {
		return c, nil, hutch.Errorf(hutch.Exhausted, "%d browsers are signed in, which is the most: sign out of some, or wait until idle sessions end", maxSessions).With("limit", "sessions").With("retryAfter", 60)
	}
	if err := s.save(ctx, x); err != nil {
		return c, nil, err
	}
	s.byID[x.key] = x
	if s.principalLocked(ctx, x) == nil { // the token ended just now
		s.removeLocked(ctx, x)
		return c, nil, errSignedOut
	}
	return c, x, nil
}

// makeRoomLocked removes ended sessions when there are many, and the session of a principal unused for longest when
// the principal has as many as it can have.
func (s *sessions) makeRoomLocked(ctx context.Context, of string) {
	var own []*session
	for _, x := range s.byID {
		switch {
		case len(s.byID) >= maxSessions && s.principalLocked(ctx, x) == nil:
			s.removeLocked(ctx, x)
		case x.Of == of:
			own = append(own, x)
		}
	}
	slices.SortFunc(own, func(a, b *session) int { return a.Used.Compare(b.Used) })
	for i := 0; i <= len(own)-maxOwn; i++ {
		s.removeLocked(ctx, own[i])
	}
}

// use returns the session of a cookie, with its principal, and nil if it has ended.
func (s *sessions) use(ctx context.Context, c cookie) (*session, *caller.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byID[c.key()]
	if x == nil {
		return nil, nil
	}
	who := s.principalLocked(ctx, x)
	if who == nil {
		s.removeLocked(ctx, x)
		return nil, nil
	}
	x.Used = time.Now().UTC()
	if x.Used.Sub(x.saved) >= coarse {
		if err := s.save(context.WithoutCancel(ctx), x); err != nil {
			s.log.Warn("note the use of a session", "err", err)
		}
		x.saved = x.Used
	}
	return x, who
}

// live reports whether the session of a cookie has not ended.
func (s *sessions) live(ctx context.Context, c cookie) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byID[c.key()]
	return x != nil && s.principalLocked(ctx, x) != nil
}

// remove ends the session of a cookie.
func (s *sessions) remove(ctx context.Context, c cookie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.byID[c.key()]; x != nil {
		s.removeLocked(ctx, x)
	}
}

func (s *sessions) removeLocked(ctx context.Context, x *session) {
	delete(s.byID, x.key)
	if x.end != nil {
		x.end(errSignedOut)
	}
	if s.shelf == nil {
		return
	}
	if err := s.shelf.Delete(context.WithoutCancel(ctx), hex.EncodeToString(x.key[:])); err != nil {
		s.log.Warn("remove an ended session", "err", err)
	}
}

func (s *sessions) save(ctx context.Context, x *session) error {
	if s.shelf == nil {
		return nil
	}
	doc, err := json.Marshal(x.record)
	if err != nil {
		return err
	}
	return s.shelf.Put(ctx, hex.EncodeToString(x.key[:]), doc)
}

// principalLocked returns the principal of a session, and nil if the session or its token has ended. What runs for it
// ends with the session, and with the token.
func (s *sessions) principalLocked(ctx context.Context, x *session) *caller.Principal {
	now := time.Now()
	if now.Sub(x.Used) >= idle || !now.Before(x.expires()) {
		return nil
	}
	base := x.base
	switch {
	case x.Person == nil:
		base = s.tokens.CheckSum(ctx, hash(x.Token))
	case base == nil:
		base = x.Person.principal(x.Of)
	}
	if base == nil {
		return nil
	}
	if base != x.base {
		x.base, x.who = base, x.bound(base)
	}
	return x.who
}

// bound returns a principal whose life ends with the session, too.
func (x *session) bound(base *caller.Principal) *caller.Principal {
	life, end := context.WithCancelCause(context.Background())
	stop := func() bool { return true }
	if base.Life != nil {
		stop = context.AfterFunc(base.Life, func() { end(context.Cause(base.Life)) })
	}
	x.end = func(cause error) { stop(); end(cause) }
	who := *base
	who.Life, who.Expires = life, earlier(base.Expires, x.Created.Add(longest))
	return &who
}

// expires is the latest end of a session, as far as the session itself says.
func (x *session) expires() time.Time {
	end := x.Created.Add(longest)
	if x.Person != nil {
		end = earlier(x.Person.Expires, end)
	}
	return end
}

// earlier returns the earlier of a time that can be zero, for never, and another one.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// recordOf returns the record of a session of a principal, which showed a token. A principal whose life can end is one of
// a token of this server, also when the token has ended since it was checked; only a person has no such life.
func recordOf(who *caller.Principal, token string) record {
	if who.Life == nil {
		return record{Of: who.ID, Person: personOf(who)}
	}
	sum := sha256.Sum256([]byte(token))
	return record{Of: who.ID, Token: sum[:]}
}

func personOf(who *caller.Principal) *person {
	return &person{Name: who.Name, Scopes: who.Scopes, Limits: who.Limits, Metadata: who.Metadata, Expires: who.Expires}
}

// principal returns a person as a principal. Every person is an owner.
func (p *person) principal(id string) *caller.Principal {
	return &caller.Principal{ID: id, Owner: id, Name: p.Name, Scopes: p.Scopes, Limits: p.Limits, Metadata: p.Metadata, Expires: p.Expires}
}

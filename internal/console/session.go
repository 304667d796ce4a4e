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
	"hutch/internal/openid"
)

const (
	// idle is how long a session lasts without a request.
	idle = 12 * time.Hour
	// longest is how long a session lasts at most.
	longest = 7 * 24 * time.Hour
	// coarse is the precision of the stored time of the last request.
	coarse = 10 * time.Minute
	// maxOwn is how many sessions one token or person has. One more session ends the session that has been unused for
	// longest.
	maxOwn = 20
	// maxSessions is the highest number of sessions, to bound their memory.
	maxSessions = 10_000
)

// Tokens checks the tokens that people sign in with.
type Tokens interface {
	// Check returns the principal of a token; its error is of kind Denied when the token is not valid.
	Check(ctx context.Context, token string) (*caller.Principal, error)
	// CheckSum returns the principal of a live token of this server by the token's SHA-256, or nil if there is no such
	// token.
	CheckSum(ctx context.Context, sum [sha256.Size]byte) *caller.Principal
}

// Collection is where sessions are stored.
type Collection interface {
	Put(ctx context.Context, key string, doc []byte) error
	// Replace replaces the document with a key. If there is no such document, it does nothing and returns false.
	Replace(ctx context.Context, key string, doc []byte) (bool, error)
	Delete(ctx context.Context, key string) error
	All(ctx context.Context) (map[string][]byte, error)
}

// sessions has the browsers that are signed in. For each session the server keeps only the SHA-256 of cookie and token,
// so a reader of the store can use neither of them.
type sessions struct {
	tokens     Tokens
	collection Collection // nil for none
	renewals   renewals
	log        *slog.Logger

	mu   sync.Mutex
	byID map[hash]*session
}

type hash [sha256.Size]byte

// session is one browser that is signed in. The mutex of sessions guards its fields.
type session struct {
	key hash
	record
	saved time.Time               // the stored time of the last use
	timer *time.Timer             // ends the session when it is idle for too long
	end   context.CancelCauseFunc // ends the life of who

	renewal   renewal // only for a person's session
	elsewhere bool    // another server renews the session

	base *caller.Principal // the principal without the session's end
	who  *caller.Principal // the principal whose life ends with the session
}

// record is the stored form of a session. The session belongs to a token of this server, or to a person who signed in
// with an issuer.
type record struct {
	Token   []byte    `json:"tokenSha256,omitempty"`
	Person  *person   `json:"person,omitempty"`
	Of      string    `json:"of"`               // the id of the principal
	Secure  bool      `json:"secure,omitempty"` // the browser was told to send the cookie only over TLS
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

// key returns the key under which the server stores the cookie's session.
func (c cookie) key() hash { return sha256.Sum256(c[:]) }

// csrf returns the value that a page sends with its cookie. The value is computed from the cookie and does not reveal
// the cookie. A page of another site can make the browser send the cookie, but cannot read this value.
func (c cookie) csrf() string {
	sum := sha256.Sum256(append([]byte("hutch csrf "), c[:]...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

var errSignedOut = hutch.Errorf(hutch.Denied, "the session ended while this was under way: sign in again")

// openSessions reads the stored sessions, and removes ended ones.
func openSessions(ctx context.Context, tokens Tokens, collection Collection, renewals renewals, log *slog.Logger) (*sessions, error) {
	s := &sessions{tokens: tokens, collection: collection, renewals: renewals, log: log, byID: map[hash]*session{}}
	if collection == nil {
		return s, nil
	}
	docs, err := collection.All(ctx)
	if err != nil {
		return nil, err
	}
	for name, doc := range docs {
		x, err := readSession(name, doc)
		if err != nil { // the person signs in again
			log.Warn("drop a session that cannot be read", "session", fmt.Sprintf("%.16s", name), "err", err)
			if err := collection.Delete(ctx, name); err != nil {
				log.Warn("remove a session that cannot be read", "err", err)
			}
			continue
		}
		s.enter(ctx, x)
	}
	return s, nil
}

// readSession reads a stored session.
func readSession(name string, doc []byte) (*session, error) {
	x := &session{}
	key, err := hex.DecodeString(name)
	if err == nil && len(key) != len(x.key) {
		err = errors.New("its key is not a hash")
	}
	if err := cmp.Or(err, json.Unmarshal(doc, &x.record)); err != nil {
		return nil, err
	}
	if x.Of == "" || (x.Person == nil) == (len(x.Token) != len(hash{})) {
		return nil, errors.New("it does not say whose it is")
	}
	x.key, x.saved = hash(key), x.Used
	return x, nil
}

// applyChange updates a session from its document, which another server has changed; nil means that the session has
// ended. The token is checked only when the session is used, because a change of the token can arrive later.
func (s *sessions) applyChange(name string, doc []byte) error {
	if doc == nil {
		key, err := hex.DecodeString(name)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil || len(key) != len(hash{}) {
			return nil
		}
		if x := s.byID[hash(key)]; x != nil {
			s.dropLocked(x)
		}
		return nil
	}
	x, err := readSession(name, doc)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.byID[x.key]
	if known == nil {
		x.elsewhere = x.Person != nil
		s.addLocked(x)
		return nil
	}
	if x.Used.After(known.Used) {
		known.Used, known.saved = x.Used, x.Used
	}
	s.renewedElsewhereLocked(known, x.Person)
	return nil
}

// enter adds a stored session, or removes it if it has ended.
func (s *sessions) enter(ctx context.Context, x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(x)
	if s.principalLocked(ctx, x) == nil {
		s.removeLocked(ctx, x)
	}
}

// addLocked adds a session. After too long without use it ends by itself, with its open streams.
func (s *sessions) addLocked(x *session) {
	s.byID[x.key] = x
	x.timer = time.AfterFunc(time.Until(x.ends()), func() { s.expire(x) })
}

// expire ends a session that was idle for too long. A session that was used after its timer was set continues.
func (s *sessions) expire(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[x.key] != x {
		return
	}
	if left := time.Until(x.ends()); left > 0 {
		x.timer.Reset(left)
		return
	}
	s.removeLocked(context.Background(), x)
}

// create begins a session. If the principal has too many sessions, it ends the one that was unused for longest. grant
// is the person's grant, or nil.
func (s *sessions) create(ctx context.Context, rec record, grant *openid.Grant) (cookie, *session, error) {
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
	s.addLocked(x)
	if grant != nil {
		if x.renewal.grant = grant; grant.Renewable() {
			left := time.Until(rec.Person.Expires)
			s.planRenewalLocked(x, left-lead(left))
		}
	}
	if s.principalLocked(ctx, x) == nil { // the token ended just now
		s.removeLocked(ctx, x)
		return c, nil, errSignedOut
	}
	return c, x, nil
}

// makeRoomLocked removes ended sessions when there are many, and if the principal has the maximum, also the principal's
// session that was unused for longest.
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

// use returns the session of a cookie, with its principal, or nil if it has ended.
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
		there, err := s.renew(context.WithoutCancel(ctx), x)
		if err != nil {
			s.log.Warn("note the use of a session", "err", err)
		}
		if err == nil && !there { // another server has ended the session
			s.dropLocked(x)
			return nil, nil
		}
		x.saved = x.Used
	}
	return x, who
}

// live reports whether a cookie has a session that has not ended.
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

// dropLocked removes a session from memory and ends its work. Its document is already removed.
func (s *sessions) dropLocked(x *session) {
	delete(s.byID, x.key)
	x.timer.Stop()
	if x.renewal.timer != nil {
		x.renewal.timer.Stop()
	}
	if x.end != nil {
		x.end(errSignedOut)
	}
}

func (s *sessions) removeLocked(ctx context.Context, x *session) {
	s.dropLocked(x)
	if s.collection == nil {
		return
	}
	if err := s.collection.Delete(context.WithoutCancel(ctx), hex.EncodeToString(x.key[:])); err != nil {
		s.log.Warn("remove an ended session", "err", err)
	}
}

// renew stores the time of a session's last use. there is false if the session no longer exists.
func (s *sessions) renew(ctx context.Context, x *session) (there bool, err error) {
	if s.collection == nil {
		return true, nil
	}
	doc, err := json.Marshal(x.record)
	if err != nil {
		return true, err
	}
	return s.collection.Replace(ctx, hex.EncodeToString(x.key[:]), doc)
}

func (s *sessions) save(ctx context.Context, x *session) error {
	if s.collection == nil {
		return nil
	}
	doc, err := json.Marshal(x.record)
	if err != nil {
		return err
	}
	return s.collection.Put(ctx, hex.EncodeToString(x.key[:]), doc)
}

// principalLocked returns the principal of a session, or nil if the session or its token has ended. The principal's
// work ends with the session, and with the token.
func (s *sessions) principalLocked(ctx context.Context, x *session) *caller.Principal {
	if !time.Now().Before(x.ends()) {
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

// bound returns a principal whose life also ends with the session.
func (x *session) bound(base *caller.Principal) *caller.Principal {
	life, release := caller.Until(context.Background(), base.Life)
	life, end := context.WithCancelCause(life)
	x.end = func(cause error) { end(cause); release() }
	who := *base
	if x.renewal.timer != nil || x.elsewhere {
		who.Expires = time.Time{} // renewals move the end of the token; the session's end bounds it instead
	}
	who.Life, who.Expires = life, earlier(who.Expires, x.Created.Add(longest))
	return &who
}

// expires returns the latest end of a session, according to the session's own times.
func (x *session) expires() time.Time {
	end := x.Created.Add(longest)
	if x.Person != nil {
		end = earlier(x.Person.Expires, end)
	}
	return end
}

// ends returns the time at which a session ends without further use.
func (x *session) ends() time.Time { return earlier(x.expires(), x.Used.Add(idle)) }

// earlier returns the earlier of two times; the first can be zero, for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// recordOf returns the record of a new session. The principal has signed in with the token. If the principal has a
// Life, the session belongs to a token of this server, even if that token was revoked a moment ago. Only a person of an
// issuer has no Life.
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

package rest

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
)

const (
	keepAnswer  = 24 * time.Hour
	keepAnswers = 10_000
	keepBytes   = 64 << 20 // most bytes of kept answers
	maxKey      = 255      // bytes
)

// answers remembers the answers to calls with an Idempotency-Key, so that a client that did not get the answer can
// repeat the call. A failed call is forgotten, because a repetition can succeed.
type answers struct {
	mu    sync.Mutex
	byKey map[string]*remembered
	order []*remembered // oldest first
	size  int           // bytes of the answers in order
}

// remembered is a call. When done is closed, the answer is set, unless the call failed.
type remembered struct {
	key     string
	request [sha256.Size]byte
	at      time.Time
	done    chan struct{}
	answer  []byte
	gone    bool // already removed from order
}

// do returns the answer to a call with this key: the result of f, or of an earlier call with the same key.
func (a *answers) do(r *http.Request, key string, request any, f func() (any, error)) (answer json.RawMessage, again bool, err error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, false, err
	}
	sum := sha256.Sum256(b)
	key = keyOf(r) + key
	for {
		call, mine := a.enter(key, sum)
		if mine {
			answer, err := a.finish(call, f)
			return answer, false, err
		}
		if call.request != sum {
			return nil, false, hutch.Errorf(hutch.Conflict, "this Idempotency-Key was used for another request: use a new key for a new request").With("header", "Idempotency-Key")
		}
		select {
		case <-call.done:
		case <-r.Context().Done():
			return nil, false, r.Context().Err()
		}
		if call.answer != nil {
			return call.answer, true, nil
		}
	}
}

// keyOf returns a text for the caller of a request, so that equal keys of different callers are distinct, wherever in
// the request the token is.
func keyOf(r *http.Request) string {
	who := r.Header.Get("Authorization") // for a server without callers
	if p := caller.From(r.Context()).Principal; p != nil {
		who = "principal " + p.ID
	}
	sum := sha256.Sum256([]byte(who))
	return string(sum[:])
}

// enter returns the call with a key. mine is true if the call is new; enter's caller must then call finish.
func (a *answers) enter(key string, sum [sha256.Size]byte) (call *remembered, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for len(a.order) > 0 && (len(a.order) >= keepAnswers || a.size > keepBytes || now.Sub(a.order[0].at) >= keepAnswer) {
		a.forgetOldestLocked()
	}
	if call := a.byKey[key]; call != nil {
		return call, false
	}
	call = &remembered{key: key, request: sum, at: now, done: make(chan struct{})}
	if a.byKey == nil {
		a.byKey = map[string]*remembered{}
	}
	a.byKey[key] = call
	a.order = append(a.order, call)
	return call, true
}

func (a *answers) forgetOldestLocked() {
	oldest := a.order[0]
	if a.byKey[oldest.key] == oldest {
		delete(a.byKey, oldest.key)
	}
	a.size -= len(oldest.answer)
	a.order[0] = nil
	a.order = a.order[1:]
	oldest.gone = true
}

// finish makes the call, and wakes the requests that wait for its answer.
func (a *answers) finish(call *remembered, f func() (any, error)) (answer []byte, err error) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		call.answer = answer
		if !call.gone {
			a.size += len(answer)
		}
		if answer == nil && a.byKey[call.key] == call {
			delete(a.byKey, call.key)
		}
		close(call.done)
	}()
	v, err := f()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// idempotencyKey reads the header; "" without a header.
func idempotencyKey(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[0]
	if len(keys) > 1 || key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", hutch.Errorf(hutch.Invalid, "the Idempotency-Key must be one of 1 to %d visible ASCII characters, such as a UUID", maxKey).With("header", "Idempotency-Key")
	}
	return key, nil
}

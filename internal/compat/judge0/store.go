package judge0

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"hutch"
)

const (
	maxKept    = 1000      // most submissions of an owner
	maxWaiting = 100       // most submissions of an owner that have not ended
	maxBytes   = 16 << 20  // bytes of the submissions of an owner
	allBytes   = 128 << 20 // bytes of all owners' submissions; an owner always has an equal share of them
	atOnce     = 4         // most submissions that run at once for an owner, in addition to the submissions that a client waits for
)

var errFull = hutch.Errorf(hutch.Exhausted, "queue is full").With("limit", "submissions").With("retryAfter", 1)

// submission is a program and how it ended.
type submission struct {
	token    string
	language language
	title    string // title of the language
	request  request
	created  time.Time

	// Guarded by store.mu.
	outcome
	started, finished time.Time
	size              int
}

// ended reports whether a submission has been judged. Callers hold store.mu.
func (s *submission) ended() bool { return s.status > processing }

// store are the submissions of every owner, the oldest first.
type store struct {
	keep time.Duration

	mu     sync.Mutex
	owners map[string]*submissions
	bytes  int
}

// submissions holds the submissions of one owner.
type submissions struct {
	list    []*submission
	bytes   int
	running chan struct{} // limits how many run at once
}

func newStore(keep time.Duration) *store {
	return &store{keep: keep, owners: map[string]*submissions{}}
}

// newToken returns the token of a submission, in the form of a UUID.
func newToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// add stores a new submission, and returns the semaphore that limits how many submissions of its owner run.
func (st *store) add(owner string, s *submission) (running chan struct{}, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.expireLocked()
	on := st.owners[owner]
	if on == nil {
		on = &submissions{running: make(chan struct{}, atOnce)}
	}
	waiting := 0
	for _, other := range on.list {
		if !other.ended() {
			waiting++
		}
	}
	s.size = s.request.size()
	if waiting >= maxWaiting || !on.makeRoomLocked(st, s.size, 1) || !st.makeRoomLocked(on, s.size) {
		return nil, errFull
	}
	st.owners[owner] = on
	on.list = append(on.list, s)
	on.noteLocked(st, s.size)
	return on.running, nil
}

func (on *submissions) noteLocked(st *store, n int) {
	on.bytes += n
	st.bytes += n
}

// makeRoomLocked drops the oldest ended submissions until n more bytes and some more submissions are within the limits.
func (on *submissions) makeRoomLocked(st *store, n, more int) bool {
	for on.bytes+n > maxBytes || len(on.list)+more > maxKept {
		if !on.dropLocked(st) {
			return false
		}
	}
	return true
}

// dropLocked drops the oldest ended submission.
func (on *submissions) dropLocked(st *store) bool {
	i := slices.IndexFunc(on.list, (*submission).ended)
	if i < 0 {
		return false
	}
	on.noteLocked(st, -on.list[i].size)
	on.list = slices.Delete(on.list, i, i+1)
	return true
}

// makeRoomLocked drops ended submissions of the owners that have most, until n more bytes are within the limit of all. If
// none is left to drop, because submissions of many owners wait, it returns whether the bytes are within an owner's share.
func (st *store) makeRoomLocked(on *submissions, n int) bool {
	for st.bytes+n > allBytes {
		var most *submissions
		for _, other := range st.owners {
			if slices.ContainsFunc(other.list, (*submission).ended) && (most == nil || other.bytes > most.bytes) {
				most = other
			}
		}
		if most == nil || !most.dropLocked(st) {
			return on.bytes+n <= allBytes/(len(st.owners)+1)
		}
	}
	return true
}

// expireLocked drops the submissions that ended long ago.
func (st *store) expireLocked() {
	before := time.Now().Add(-st.keep)
	for owner, on := range st.owners {
		on.list = slices.DeleteFunc(on.list, func(s *submission) bool {
			old := s.ended() && s.finished.Before(before)
			if old {
				on.noteLocked(st, -s.size)
			}
			return old
		})
		if len(on.list) == 0 {
			delete(st.owners, owner)
		}
	}
}

// begin notes that a submission runs.
func (st *store) begin(s *submission) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s.status, s.started = processing, time.Now()
}

// finish notes how a submission ended.
func (st *store) finish(owner string, s *submission, o outcome) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s.outcome, s.finished = o, time.Now()
	on := st.owners[owner]
	n := o.bytes()
	s.size += n
	on.noteLocked(st, n)
	on.makeRoomLocked(st, 0, 0)
	st.makeRoomLocked(on, 0)
}

// get calls f with the submission of a token, and reports whether it exists.
func (st *store) get(owner, token string, f func(*submission)) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.expireLocked()
	on := st.owners[owner]
	if on == nil {
		return false
	}
	i := slices.IndexFunc(on.list, func(s *submission) bool { return s.token == token })
	if i < 0 {
		return false
	}
	f(on.list[i])
	return true
}

// remove drops a submission that has ended, or that never ran; ended reports whether it had ended.
func (st *store) remove(owner, token string, even bool) (ended bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	on := st.owners[owner]
	if on == nil {
		return true
	}
	i := slices.IndexFunc(on.list, func(s *submission) bool { return s.token == token })
	if i < 0 {
		return true
	}
	if !even && !on.list[i].ended() {
		return false
	}
	on.noteLocked(st, -on.list[i].size)
	on.list = slices.Delete(on.list, i, i+1)
	return true
}

// page calls f with some submissions, the newest first, and returns how many there are.
func (st *store) page(owner string, from, n int, f func(*submission)) (total int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.expireLocked()
	on := st.owners[owner]
	if on == nil {
		return 0
	}
	for i := from; i < min(from+n, len(on.list)); i++ {
		f(on.list[len(on.list)-1-i])
	}
	return len(on.list)
}

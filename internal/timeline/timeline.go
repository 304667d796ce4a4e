// Package timeline keeps what happened in each sandbox, in order: what callers did, what the engine did, and what the
// network allowed and denied.
//
// A sandbox has one journal: a folder with two tracks, to which lines of JSON are appended. Callers and the engine
// write to the track "calls"; events that programs inside can cause without limit go to the track "programs". Each
// track has a limited size, so a program that floods its journal removes only entries of programs, never those of
// callers.
//
// A line is a [hutch.TimelineEntry]. Most entries are written once, when they have ended. A long call is written when
// it has run for a second, and again with the same id when it has ended: the later line replaces the earlier one. So a
// short call costs one write(2), and a long call has an entry even if the server is killed. Nothing is synced: a power
// failure can lose the newest entries.
//
// A journal belongs to the owner of its sandbox, and is kept when the sandbox is destroyed. A later sandbox with the same
// owner and id continues the journal. A journal is removed when all its entries are older than the lines that the audit
// log keeps.
//
//	timeline/OWNER/SANDBOX/calls.jsonl      the newest lines of a track; OWNER is a hash
//	timeline/OWNER/SANDBOX/calls.old.jsonl  the older lines
package timeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
)

// Options configure the timelines. Dir is required.
type Options struct {
	Dir  string        // a folder of its own, created when missing
	Keep time.Duration // how long entries are kept; default 30 days, negative for ever
	// Redact removes the secrets of an owner from a text; nil changes nothing. Secrets of others stay: replacing one
	// would confirm the owner's guess.
	Redact func(owner, text string) string
	Log    *slog.Logger
}

// Timelines has the journals of all sandboxes. Its methods are safe for concurrent use.
type Timelines struct {
	opt   Options
	fresh chan struct{} // has a value when many journals are new
	warn  sync.Once
	files atomic.Int32 // files that journals keep open

	mu       sync.Mutex
	journals map[name]*journal // recently used journals
	made     int               // since the last sweep
}

// name identifies a sandbox.
type name struct{ owner, id string }

var _ hutch.Timelines = (*Timelines)(nil)

// Open opens the timelines of a folder. Only one process at a time can have them open.
func Open(opt Options) (*Timelines, error) {
	opt.Keep = cmp.Or(opt.Keep, 30*24*time.Hour)
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Redact == nil {
		opt.Redact = func(_, text string) string { return text }
	}
	t := &Timelines{opt: opt, fresh: make(chan struct{}, 1), journals: map[name]*journal{}}
	return t, os.MkdirAll(opt.Dir, 0o700)
}

// folder returns the path of the folder with the journals of an owner.
func (t *Timelines) folder(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return filepath.Join(t.opt.Dir, hex.EncodeToString(sum[:16]))
}

// find returns the journal of a sandbox, or nil if it has none and create is false.
func (t *Timelines) find(n name, create bool) (*journal, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.journals[n]; j != nil {
		return j, nil
	}
	if hutch.CheckID(n.id) != nil { // it names a folder
		return nil, nil
	}
	dir := filepath.Join(t.folder(n.owner), n.id)
	_, err := os.Stat(dir)
	switch {
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case !create:
		return nil, nil
	default:
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		t.noteMadeLocked()
	}
	j := newJournal(dir, &t.files)
	t.journals[n] = j
	return j, nil
}

// sweepAfter is the number of new journals after which the next sweep is due.
const sweepAfter = 256

func (t *Timelines) noteMadeLocked() {
	if t.made++; t.made%sweepAfter == 0 {
		select {
		case t.fresh <- struct{}{}:
		default:
		}
	}
}

// write adds an entry to the journal of a sandbox, and returns the entry's id. If the sandbox has no journal, it gets one
// only with create. An entry that cannot be written is lost. The audit log has the same calls, and refuses a call that it
// cannot record.
func (t *Timelines) write(n name, create bool, e hutch.TimelineEntry) (id int64) {
	for range 2 { // a sweep can remove the journal in between
		j, err := t.find(n, create)
		if err == nil && j == nil {
			return 0
		}
		if err == nil {
			id, err = j.append(e)
		}
		if errors.Is(err, errRemoved) {
			continue
		}
		if err != nil {
			t.warn.Do(func() {
				t.opt.Log.Error("an entry of a timeline cannot be written, and is lost", "sandbox", n.id, "err", err)
			})
		}
		return id
	}
	return 0
}

// Close closes open files.
func (t *Timelines) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, j := range t.journals {
		j.remove()
		delete(t.journals, n)
	}
	return nil
}

// Run removes old and excess journals. It returns when ctx is done.
func (t *Timelines) Run(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if err := t.sweep(time.Now()); err != nil {
			t.opt.Log.Error("remove old timelines", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-t.fresh:
		}
	}
}

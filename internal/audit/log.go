package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/verb"
)

// Options configure a log. Dir is required.
type Options struct {
	Dir  string        // the log's own folder, created if it is missing
	Keep time.Duration // how long files are kept; default 30 days, negative for ever
	Log  *slog.Logger
	now  func() time.Time // replaced in tests
}

const (
	day       = 24 * time.Hour
	extension = ".jsonl"
	dayFormat = "2006-01-02"
	syncEvery = time.Second
)

// Log is an open log, and an [Observer]. Its methods are safe for concurrent use.
type Log struct {
	opt Options

	syncing sync.Mutex // one sync at a time, because the checkpoint is one file

	mu      sync.Mutex
	file    *os.File // file of the day
	name    string   // name of file
	size    int64    // size of the complete lines in file
	last    link
	buf     []byte
	open    map[int64]Operation // open operations, by the number of their line
	lost    int64               // how many lines could not be written since the last success
	fault   error               // error of the last write, or nil
	grown   chan struct{}       // closed when there is a new line; nil when no reader waits
	settled link                // the last line in the checkpoint
	closed  bool
}

// Open opens the log of a folder and continues after its last line. It records what an earlier daemon left unfinished:
// an incomplete line, and operations in progress. Only one process at a time can have a log open.
func Open(ctx context.Context, opt Options) (*Log, error) {
	opt.Keep = cmp.Or(opt.Keep, 30*day)
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.now == nil {
		opt.now = time.Now
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	l := &Log{opt: opt, last: link{hash: origin}, open: map[int64]Operation{}}
	if err := l.recover(ctx); err != nil {
		l.Close()
		return nil, fmt.Errorf("open audit log %s: %w", opt.Dir, err)
	}
	return l, nil
}

// Begin implements Observer. If the disk accepts no line, Begin refuses verbs that change something, except those that
// free memory or disk space. It does not refuse verbs that only look.
func (l *Log) Begin(ctx context.Context, op Operation) (context.Context, func(Outcome), error) {
	op.Trace = cmp.Or(op.Trace, caller.From(ctx).TraceID())
	var began int64
	if v, _ := verb.Find(op.Verb); !v.Looks && op.Verb != Broker {
		var err error
		if began, err = l.write(Begin, 0, op); err != nil && !v.Frees {
			return ctx, nil, refusal(err)
		}
	}
	return ctx, func(o Outcome) { l.write(End, began, op.end(o, l.opt.now())) }, nil
}

// Record writes a line for something that has already happened, for example a refused login.
func (l *Log) Record(op Operation) error {
	_, err := l.write(End, 0, op)
	return err
}

func refusal(err error) error {
	return hutch.Errorf(hutch.Unavailable, "the audit log cannot be written, and nothing is done without a record: free space on the disk that holds the server's data folder").Because(err)
}

// write appends a line, and returns its number.
func (l *Log) write(phase Phase, began int64, op Operation) (int64, error) {
	c, err := content(phase, began, op)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if phase == End {
		delete(l.open, began)
	}
	err = l.recordLossLocked()
	if err == nil {
		err = l.appendLocked(c)
	}
	if err != nil {
		l.missLocked(phase, err)
		return 0, err
	}
	if phase == Begin {
		l.open[l.last.seq] = op.bounded()
	}
	return l.last.seq, nil
}

// missLocked counts a line that could not be written. It does not count the line for the beginning of an operation,
// because that operation is refused and so never happens.
func (l *Log) missLocked(phase Phase, err error) {
	if l.fault == nil {
		l.opt.Log.Error("the audit log cannot be written: calls that change something are refused", "err", err)
	}
	l.fault = err
	if phase != Begin {
		l.lost++
	}
}

// recordLossLocked records how many lines are missing, before the next one.
func (l *Log) recordLossLocked() error {
	if l.lost == 0 {
		return nil
	}
	err := l.markLocked(AuditLost, fmt.Sprintf("%d lines", l.lost))
	if err == nil {
		l.lost = 0
	}
	return err
}

// markLocked writes a mark.
func (l *Log) markLocked(verb, target string) error {
	c, err := content(Mark, 0, Operation{Time: l.opt.now(), Verb: verb, Target: target, Result: OK})
	if err != nil {
		return err
	}
	return l.appendLocked(c)
}

// appendLocked writes one line. It truncates a partial write, so that the next line starts cleanly.
func (l *Log) appendLocked(content []byte) error {
	if l.closed {
		return os.ErrClosed
	}
	if err := l.rotateLocked(); err != nil {
		return err
	}
	next := link{seq: l.last.seq + 1, prev: l.last.hash}
	l.buf, next.hash = appendLine(l.buf[:0], next.seq, next.prev, content)
	if n, err := l.file.WriteAt(l.buf, l.size); err != nil {
		if n > 0 {
			err = errors.Join(err, l.file.Truncate(l.size))
		}
		return err
	}
	l.size += int64(len(l.buf))
	l.last, l.fault = next, nil
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
	return nil
}

// rotateLocked switches to the file of the day. If the clock was set back, it stays with the present file, because the
// order of the files is the order of their lines.
func (l *Log) rotateLocked() error {
	name := l.opt.now().UTC().Format(dayFormat) + extension
	if l.file != nil && name <= l.name {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(l.opt.Dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if l.file != nil {
		if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
			l.opt.Log.Error("the audit log of a day may not be on disk", "err", err)
		}
	}
	l.file, l.name, l.size = f, name, 0
	return nil
}

// Ready returns why the log cannot write lines, or nil.
func (l *Log) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		return refusal(l.fault)
	}
	return nil
}

// Run syncs the log to disk each second, and removes expired files. It returns when ctx is done.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	var looked string
	for {
		if today := l.opt.now().UTC().Format(dayFormat); today != looked {
			looked = today
			l.attempt("remove old files of the audit log", l.expire)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.attempt("bring the audit log to the disk", l.sync)
		}
	}
}

func (l *Log) attempt(what string, do func() error) {
	if err := do(); err != nil {
		l.opt.Log.Error(what, "err", err)
	}
}

// checkpoint says how much of the log is known to be on disk. The next start reads the log from there. A log that is
// shorter than its checkpoint has lost its end.
type checkpoint struct {
	File string              `json:"file"`
	Size int64               `json:"size"`
	Seq  int64               `json:"seq"`
	Hash string              `json:"hash"`
	Open map[int64]Operation `json:"open"`
}

// sync syncs the log to disk, and records that in the checkpoint.
func (l *Log) sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	if l.file == nil || l.last == l.settled {
		l.mu.Unlock()
		return nil
	}
	now, file := l.last, l.file
	c := checkpoint{l.name, l.size, now.seq, string(now.hash[:]), maps.Clone(l.open)}
	l.mu.Unlock()
	if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // a closed file is already on disk
		return err
	}
	if err := c.save(l.opt.Dir); err != nil {
		return err
	}
	l.mu.Lock()
	l.settled = now
	l.mu.Unlock()
	return nil
}

const checkpointName = "checkpoint"

func (c checkpoint) save(dir string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, checkpointName)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Close syncs the log and closes it. Call it after Run has returned, when no calls are in progress.
func (l *Log) Close() error {
	err := l.sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && !l.closed {
		err = errors.Join(err, l.file.Close())
	}
	l.closed = true
	return err
}

// files lists the log's files, the oldest first.
func files(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "????-??-??"+extension))
	slices.Sort(all)
	return all, err
}

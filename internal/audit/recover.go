package audit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// recover finds the end of the log, and records what an earlier daemon could not record.
func (l *Log) recover(ctx context.Context) error {
	known := loadCheckpoint(l.opt.Dir)
	if !known.holds(l.opt.Dir) {
		known.File, known.Size = "", 0
	}
	if known.File != "" {
		l.last.seq = known.Seq
		copy(l.last.hash[:], known.Hash)
		maps.Copy(l.open, known.Open)
	}
	if err := l.replay(ctx, known); err != nil {
		return err
	}
	torn, err := l.setAside()
	if err != nil {
		return err
	}
	return l.report(torn, known)
}

func loadCheckpoint(dir string) (c checkpoint) {
	b, err := os.ReadFile(filepath.Join(dir, checkpointName))
	if err != nil || json.Unmarshal(b, &c) != nil {
		return checkpoint{} // without a checkpoint, the whole log is read
	}
	return c
}

// holds reports whether the log has the checkpoint's line at its position.
func (c checkpoint) holds(dir string) bool {
	if c.File != filepath.Base(c.File) || c.Size < int64(tail) {
		return false
	}
	f, err := os.Open(filepath.Join(dir, c.File))
	if err != nil {
		return false
	}
	defer f.Close()
	end := make([]byte, tail)
	_, err = f.ReadAt(end, c.Size-int64(tail))
	return err == nil && string(end) == beforeHash+c.Hash+lineEnd
}

// replay reads the lines after the checkpoint. From them it finds the chain's last line, and the operations that have
// not ended. It leaves malformed lines for Verify to find.
func (l *Log) replay(ctx context.Context, known checkpoint) error {
	r, err := readFrom(l.opt.Dir, known.File, known.Size)
	if err != nil {
		return err
	}
	defer r.Close()
	l.name, l.size = known.File, known.Size
	for ctx.Err() == nil {
		line, err := r.next()
		if r.name != l.name {
			l.name, l.size = r.name, 0
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if at, _, err := parseLink(line); err == nil {
			l.last, l.size = at, r.at
			l.trackOpen(at.seq, line)
		}
	}
	return context.Cause(ctx)
}

// trackOpen updates the open operations from a line.
func (l *Log) trackOpen(seq int64, line []byte) {
	var rec Record
	if json.Unmarshal(line, &rec) != nil {
		return
	}
	switch rec.Phase {
	case Begin:
		l.open[seq] = rec.Operation
	case End:
		delete(l.open, rec.Began)
	}
}

// setAside moves the bytes after the last whole line to a separate file, and returns a description. A power cut in
// the middle of a write leaves such bytes.
func (l *Log) setAside() (what string, err error) {
	if l.name == "" {
		return "", nil
	}
	if l.file, err = os.OpenFile(filepath.Join(l.opt.Dir, l.name), os.O_RDWR, 0o600); err != nil {
		return "", err
	}
	end, err := l.file.Seek(0, io.SeekEnd)
	if err != nil || end == l.size {
		return "", err
	}
	name := fmt.Sprintf("%s.torn-%d", l.name, l.last.seq)
	aside, err := os.OpenFile(filepath.Join(l.opt.Dir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(aside, sum), io.NewSectionReader(l.file, l.size, end-l.size))
	if err = errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d bytes sha256 %x", name, n, sum.Sum(nil)), l.file.Truncate(l.size)
}

// report writes the marks of a start, and the ends of interrupted operations.
func (l *Log) report(torn string, known checkpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	if l.last.seq < known.Seq {
		missing := fmt.Sprintf("lines %d to %d", l.last.seq+1, known.Seq)
		l.last.seq = known.Seq // so that the numbers of the missing lines stay unused
		errs = append(errs, l.markLocked(AuditGap, missing))
	}
	if torn != "" {
		errs = append(errs, l.markLocked(AuditTorn, torn))
	}
	errs = append(errs, l.markLocked(AuditStart, ""))
	for _, seq := range slices.Sorted(maps.Keys(l.open)) {
		op := l.open[seq]
		op.Result, op.Error = Interrupted, "the server ended while this was under way: whether it was done is not known"
		c, err := content(End, seq, op)
		errs = append(errs, err, l.appendLocked(c))
		delete(l.open, seq)
	}
	return errors.Join(errs...)
}

// expire removes files that are older than the time for which files are kept, oldest first. Before it removes a file,
// it writes a mark with the file's last line.
func (l *Log) expire() error {
	if l.opt.Keep < 0 {
		return nil
	}
	all, err := files(l.opt.Dir)
	if err != nil {
		return err
	}
	oldest := l.opt.now().Add(-l.opt.Keep).UTC().Format(dayFormat) + extension
	for _, path := range all {
		if filepath.Base(path) >= oldest {
			return nil
		}
		if err := l.remove(path); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) remove(path string) error {
	l.mu.Lock()
	current := filepath.Base(path) == l.name
	l.mu.Unlock()
	if current {
		return nil
	}
	last, err := lastOf(path)
	if err == nil {
		l.mu.Lock()
		err = l.markLocked(AuditExpire, expired(last))
		l.mu.Unlock()
	}
	if err != nil && !errors.Is(err, errMalformed) { // a file without valid lines can be removed without a mark
		return err
	}
	if err := l.sync(); err != nil {
		return err
	}
	aside, _ := filepath.Glob(path + ".torn-*")
	for _, p := range append(aside, path) {
		if err := os.Remove(p); err != nil {
			return err
		}
	}
	return nil
}

// expired returns the target of the mark for a removed file, given the file's last line.
func expired(last link) string { return fmt.Sprintf("%d %s", last.seq, last.hash[:]) }

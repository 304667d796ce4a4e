package timeline

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits on the journals of one owner. The journals that were written to least recently are removed first.
const (
	mostJournals = 10_000
	mostBytes    = 1 << 30
)

// stored is a journal on disk.
type stored struct {
	dir    string
	size   int64
	newest time.Time
}

// sweep removes expired journals and files, and those over the owner's limit. It forgets journals that were not used
// for a while.
func (t *Timelines) sweep(now time.Time) error {
	t.forgetUnused(now)
	owners, err := os.ReadDir(t.opt.Dir)
	for _, owner := range owners {
		err = errors.Join(err, t.sweepOwner(filepath.Join(t.opt.Dir, owner.Name()), now))
	}
	return err
}

func (t *Timelines) sweepOwner(dir string, now time.Time) error {
	all, err := t.stored(dir, now)
	slices.SortFunc(all, func(a, b stored) int { return cmp.Or(b.newest.Compare(a.newest), cmp.Compare(a.dir, b.dir)) })
	var size int64
	for i, s := range all {
		size += s.size
		if i >= mostJournals || size > mostBytes || t.expired(s.newest, now) {
			err = errors.Join(err, t.remove(s.dir))
		}
	}
	os.Remove(dir) // fails unless the folder is empty
	return err
}

func (t *Timelines) expired(at, now time.Time) bool {
	return t.opt.Keep > 0 && at.Before(now.Add(-t.opt.Keep))
}

// stored lists the journals of an owner. It removes the older half of a track that is too old.
func (t *Timelines) stored(dir string, now time.Time) (all []stored, err error) {
	journals, err := os.ReadDir(dir)
	for _, j := range journals {
		s := stored{dir: filepath.Join(dir, j.Name())}
		files, failed := os.ReadDir(s.dir)
		err = errors.Join(err, failed)
		for _, f := range files {
			info, failed := f.Info()
			if failed != nil {
				continue // it was rotated in the meantime
			}
			if strings.HasSuffix(f.Name(), ".old.jsonl") && t.expired(info.ModTime(), now) {
				os.Remove(filepath.Join(s.dir, f.Name()))
				continue
			}
			s.size += info.Size()
			if info.ModTime().After(s.newest) {
				s.newest = info.ModTime()
			}
		}
		if len(files) == 0 { // it was made just now, or no line could be written
			if info, failed := j.Info(); failed == nil {
				s.newest = info.ModTime()
			}
		}
		all = append(all, s)
	}
	return all, err
}

// remove removes a journal from memory and disk. A caller that is using it gets errRemoved, and looks for the journal
// again.
func (t *Timelines) remove(dir string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, j := range t.journals {
		if j.dir == dir {
			j.remove()
			delete(t.journals, n)
		}
	}
	if err := os.RemoveAll(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remove ends the use of the journal in memory.
func (j *journal) remove() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endLocked()
}

// unusedTime is how long an unused journal stays in memory.
const unusedTime = time.Hour

func (t *Timelines) forgetUnused(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, j := range t.journals {
		if j.forget(now) {
			delete(t.journals, n)
		}
	}
}

// forget reports whether no caller needs the journal in memory. If so, it also makes the journal unusable.
func (j *journal) forget(now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.running) > 0 || j.readers > 0 || now.Sub(j.used) < unusedTime {
		return false
	}
	j.endLocked()
	return true
}

// Forget removes the timelines of an owner.
func (t *Timelines) Forget(owner string) error {
	dir := t.folder(owner)
	journals, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, j := range journals {
		err = errors.Join(err, t.remove(filepath.Join(dir, j.Name())))
	}
	return errors.Join(err, os.Remove(dir))
}

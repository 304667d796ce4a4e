// Package saved keeps the disk state of sleeping sandboxes. A stopped sandbox has an archive of its files; a hibernated
// one has a folder with its memory and its files.
//
// Saved state is complete or absent: it is written under another name, synced and renamed. Its name is the key of the
// sandbox's record. Only the records show which sandboxes sleep: [Dir.Sweep] removes all other state, except the state
// of sandboxes that have a note of their arrival.
package saved

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"hutch"
	"hutch/internal/durable"
)

// Dir is the folder of the saved state. Its methods are safe for concurrent use, for different sandboxes.
type Dir struct {
	path  string
	log   *slog.Logger
	tasks sync.WaitGroup // removals
}

// Open opens the folder, and makes it if it is missing. It also removes the remains of interrupted work.
func Open(path string, log *slog.Logger) (*Dir, error) {
	d := &Dir{path: path, log: log}
	err := errors.Join(os.MkdirAll(d.files(), 0o700), os.MkdirAll(d.memory(), 0o700), os.MkdirAll(d.arrivals(), 0o700), os.RemoveAll(d.checkpoints()), os.RemoveAll(d.trash()), os.Mkdir(d.trash(), 0o700))
	return d, err
}

// Close waits until all removals have ended.
func (d *Dir) Close() { d.tasks.Wait() }

func (d *Dir) files() string  { return filepath.Join(d.path, "files") }
func (d *Dir) memory() string { return filepath.Join(d.path, "memory") }
func (d *Dir) trash() string  { return filepath.Join(d.path, "trash") }

// checkpoints returns the folder that has copies of running sandboxes while a backup of the data folder is made. In it,
// NAME is like Memory and NAME.tar is like Archive, where NAME is the CheckpointName of the sandbox's record.
func (d *Dir) checkpoints() string { return filepath.Join(d.path, "checkpoints") }

// Archive returns the path of the files of a stopped sandbox.
func (d *Dir) Archive(key string) string { return filepath.Join(d.files(), key+".tar") }

// Memory returns the path of the folder for a sandbox that its runtime saved with its memory.
func (d *Dir) Memory(key string) string { return filepath.Join(d.memory(), key) }

// half returns the path of the folder that becomes Memory, while it is being written.
func (d *Dir) half(key string) string { return d.Memory(key) + ".new" }

// WriteArchive saves the files that fill writes, with a limit on their bytes.
func (d *Dir) WriteArchive(key string, most int64, fill func(io.Writer) error) error {
	path := d.Archive(key)
	if _, err := WriteArchive(path, most, true, fill); err != nil {
		return err
	}
	if err := errors.Join(durable.Sync(path), durable.Sync(d.files())); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// WriteMemory saves a folder with the files that fill writes into it.
func (d *Dir) WriteMemory(key string, fill func(dir string) error) error {
	half := d.half(key)
	if err := fillFolder(half, fill); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(d.Memory(key)), os.Rename(half, d.Memory(key))); err != nil {
		return err
	}
	return durable.Sync(d.memory())
}

// WriteCopy writes the output of fill to a folder next to the memory of a sandbox. The caller removes the folder;
// otherwise the next start does.
func (d *Dir) WriteCopy(key string, fill func(dir string) error) (dir string, err error) {
	dir = d.Memory(key) + ".copy"
	if err := fillFolder(dir, fill); err != nil {
		return "", err
	}
	return dir, nil
}

// fillFolder makes an empty folder and calls fill with it. It removes the folder after an error.
func fillFolder(dir string, fill func(dir string) error) error {
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// OpenCheckpoints makes the folder for the copies of a backup. The returned function removes it with all copies.
func (d *Dir) OpenCheckpoints() (remove func() error, err error) {
	err = errors.Join(os.RemoveAll(d.checkpoints()), os.Mkdir(d.checkpoints(), 0o700))
	return func() error { return os.RemoveAll(d.checkpoints()) }, err
}

// CheckpointMemory writes the output of fill to a folder for a backup.
func (d *Dir) CheckpointMemory(name string, fill func(dir string) error) error {
	dir := filepath.Join(d.checkpoints(), name)
	half := dir + ".new"
	if err := fillFolder(half, fill); err != nil {
		return err
	}
	return os.Rename(half, dir)
}

// CheckpointArchive writes the files that fill writes to an archive for a backup, with a limit on their bytes.
func (d *Dir) CheckpointArchive(name string, most int64, fill func(io.Writer) error) error {
	_, err := WriteArchive(filepath.Join(d.checkpoints(), name+".tar"), most, true, fill)
	return err
}

// RemoveArchive removes the files of a sandbox that woke, or did not sleep.
func (d *Dir) RemoveArchive(key string) error { return os.Remove(d.Archive(key)) }

// RemoveMemory removes the folder of a sandbox, complete or half-written.
func (d *Dir) RemoveMemory(key string) error {
	return errors.Join(os.RemoveAll(d.half(key)), os.RemoveAll(d.Memory(key)))
}

// Remove removes all saved state of a sandbox.
func (d *Dir) Remove(key string) error {
	if err := os.Remove(d.Archive(key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(d.Memory(key))
}

// RemoveInBackground removes a folder without waiting for the disk.
func (d *Dir) RemoveInBackground(dir string) {
	gone := filepath.Join(d.trash(), hutch.NewID("gone"))
	remove := func() {
		if err := os.RemoveAll(gone); err != nil {
			d.log.Error("remove an unused folder", "err", err)
		}
	}
	if err := os.Rename(dir, gone); err != nil {
		gone = dir
		remove()
		return
	}
	d.tasks.Go(remove)
}

// HasMemory reports whether the memory folder of a sandbox exists and is not empty.
func (d *Dir) HasMemory(key string) bool {
	entries, err := os.ReadDir(d.Memory(key))
	return err == nil && len(entries) > 0
}

// Has reports whether the saved state of a sandbox with a status exists.
func (d *Dir) Has(key string, status hutch.Status) bool {
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	if status == hutch.Hibernated {
		return there(d.Memory(key))
	}
	return there(d.Archive(key)) || d.HasMemory(key)
}

// Sweep removes state that belongs to no sleeping sandbox and has no note of an arrival. status returns the status of
// the sandbox with a key, or "" if there is no such sandbox.
func (d *Dir) Sweep(status func(key string) hutch.Status) error {
	arrivals, err := d.Arrivals()
	if err != nil {
		return err
	}
	noted := func(key string) bool { _, ok := arrivals[key]; return ok && status(key) == "" }
	err = sweep(d.files(), func(name string) bool {
		key, whole := strings.CutSuffix(name, ".tar")
		return whole && (status(key) == hutch.Stopped || noted(key))
	})
	if err != nil {
		return err
	}
	return sweep(d.memory(), func(key string) bool {
		return status(key).Sleeps() || noted(key)
	})
}

func sweep(dir string, keep func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep(e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

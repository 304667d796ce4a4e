package volume

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"hutch"
	"hutch/internal/bucket"
	"hutch/internal/caller"
	"hutch/internal/durable"
	"hutch/internal/pipe"
)

// window is how much memory a reader of a volume needs.
const window = 1 << 20

// Read calls read with the content of a volume, a tar archive without compression.
func (s *Store) Read(owner, name string, read func(io.Reader) error) error {
	k := key{owner, name}
	s.mu.Lock()
	f, err := s.openLocked(k)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if f == nil {
		return read(strings.NewReader(""))
	}
	defer f.Close()
	return expand(f, name, read)
}

// openLocked opens the file with the content of a volume, which can be replaced and removed meanwhile; nil for a
// volume without files.
func (s *Store) openLocked(k key) (*os.File, error) {
	rec, err := s.findLocked(k)
	if err != nil || rec.Content == "" {
		return nil, err
	}
	f, err := os.Open(filepath.Join(s.folder(k), rec.Content))
	if err != nil {
		return nil, damaged(k.name, err)
	}
	return f, nil
}

// openContent does the same as openLocked, for a volume that has not changed since rec was read.
func (s *Store) openContent(k key, rec record) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.sameLocked(k, rec)
	if err == nil && now.Volume.Version != rec.Volume.Version {
		err = bucket.ErrChanged // a save has changed it: the next try has a new listing, too
	}
	if err != nil {
		return nil, err
	}
	return s.openLocked(k)
}

func damaged(volume string, err error) error {
	return hutch.Errorf(hutch.Internal, "the files of the volume %q are damaged on the server's disk: write a backup of it into a new volume", volume).Because(err)
}

// expand calls read with the archive in a compressed file.
func expand(f io.Reader, volume string, read func(io.Reader) error) error {
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
	if err != nil {
		return damaged(volume, err)
	}
	in := pipe.NewSource(z) // z is not closed: it holds only memory, and an abandoned reader can still use it
	err = read(in)
	if broken := in.Failure(); broken != nil {
		return damaged(volume, broken)
	}
	return err
}

// ReadPath writes the file or folder at a path of a volume as a tar archive.
func (s *Store) ReadPath(owner, name, at string, w io.Writer) error {
	if err := hutch.CheckVolumePath(at); err != nil {
		return err
	}
	clean := clean(at)
	return s.Read(owner, name, func(r io.Reader) error {
		found, err := selectEntries(r, clean, w)
		if err == nil && !found {
			return hutch.Errorf(hutch.NotFound, "there is no %.200q in the volume %q", at, name).Naming(hutch.AboutFile, at)
		}
		return err
	})
}

// clean returns a path of a volume as its archive has it; the volume itself is ".".
func clean(at string) string {
	if at = strings.TrimPrefix(path.Clean("/"+at), "/"); at == "" {
		return "."
	}
	return at
}

// Save replaces the content of a volume by the archive that pack writes. If pack or the save fails, the volume does
// not change, and its record says why.
func (s *Store) Save(ctx context.Context, owner, name string, pack func(io.Writer) error) error {
	err := s.replace(ctx, key{owner, name}, always, func(w *writer, _ string) error {
		return pipe.Through(pack, func(r io.Reader) error { return w.addAll(r, ".") })
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = hutch.Errorf(hutch.Timeout, "the save did not end in time: keep fewer or smaller files in the volume, or give the sandbox more CPU").Because(err)
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.note(key{owner, name}, err)
	}
	return err
}

func always() error { return nil }

// Write puts the entries of an archive into a folder of a volume. free is called with the store locked, before the
// content changes; its error leaves the content unchanged.
func (s *Store) Write(ctx context.Context, owner, name, at string, in io.Reader, free func() error) error {
	if err := hutch.CheckVolumePath(at); err != nil {
		return err
	}
	return s.replace(ctx, key{owner, name}, free, func(w *writer, dir string) error {
		return s.merge(ctx, key{owner, name}, w, dir, clean(at), in)
	})
}

// merge writes the content of a volume with the entries of an archive in it. The archive is stored first: which old
// files it replaces is known only at its end.
func (s *Store) merge(ctx context.Context, k key, w *writer, dir, at string, in io.Reader) error {
	f, err := os.CreateTemp(dir, halfPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	z, err := compressor(f)
	if err != nil {
		return err
	}
	fresh := newWriter(z, k.name, w.quota, w.most)
	fresh.room, fresh.large = caller.From(ctx).Budget.Take, w.large
	if at != "." {
		err = fresh.addFolders(at, time.Now())
	}
	if err == nil {
		err = fresh.addAll(in, at)
	}
	if err = errors.Join(err, fresh.tar.Close(), z.Close()); err != nil {
		return firstOf(err)
	}
	if err := s.Read(k.owner, k.name, func(r io.Reader) error { return w.keep(r, fresh.folder) }); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return expand(f, k.name, func(r io.Reader) error { return w.addAll(r, ".") })
}

// firstOf returns the most informative of several related errors.
func firstOf(err error) error {
	if e, ok := errors.AsType[*hutch.Error](err); ok {
		return e
	}
	return err
}

// keep adds the entries of an archive, except files that others replace.
func (w *writer) keep(in io.Reader, others map[string]bool) error {
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if folder, ok := others[h.Name]; ok && !folder && h.Typeflag != tar.TypeDir {
			continue
		}
		if err := w.add(h, ".", r); err != nil {
			return err
		}
	}
}

func compressor(out io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(true))
}

// replace gives a volume the content that build writes, completely or not at all. Changes of a volume wait for each
// other.
func (s *Store) replace(ctx context.Context, k key, free func() error, build func(w *writer, dir string) error) error {
	dir := s.folder(k)
	if err := s.turns.Take(ctx, dir); err != nil {
		return err
	}
	defer s.turns.Put(dir)
	v, err := s.Find(k.owner, k.name)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, halfPrefix)
	if err != nil {
		return durable.Explained(err, s.dir)
	}
	defer os.Remove(f.Name()) // by then the file has another name, or is not needed
	defer f.Close()
	large, end := s.takeLarge(ctx, k)
	defer end()
	w, sum, err := s.fill(f, v, func(w *writer) error {
		w.large = large
		return build(w, dir)
	})
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = s.publish(k, newContent{f.Name(), sum, w}, free, nil)
	}
	return durable.Explained(err, s.dir)
}

// takeLarge returns two functions. take waits until no other change of the owner's volumes has many names; end lets the
// next such change begin. The limit is needed because sandboxes choose the names, and many sandboxes can save a volume
// at once.
func (s *Store) takeLarge(ctx context.Context, k key) (take func() error, end func()) {
	home, held := filepath.Dir(s.folder(k)), false
	take = func() error {
		if held {
			return nil
		}
		err := s.large.Take(ctx, home)
		held = err == nil
		return err
	}
	return take, func() {
		if held {
			s.large.Put(home)
		}
	}
}

// fill writes new content of a volume to a file.
func (s *Store) fill(f *os.File, v hutch.Volume, build func(*writer) error) (*writer, string, error) {
	z, err := compressor(f)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	w := newWriter(io.MultiWriter(z, sum), v.Name, int64(v.Quota)<<20, s.entries)
	if err = errors.Join(build(w), w.tar.Close(), z.Close()); err != nil {
		return nil, "", firstOf(err)
	}
	return w, hex.EncodeToString(sum.Sum(nil)), nil
}

// newContent is new content of a volume, in a file that is on disk.
type newContent struct {
	file   string
	sum    string // SHA-256 of the plain archive
	writer *writer
}

// publish makes a file the content of a volume. Unchanged content is not a new version. The function also, if not nil,
// changes the record in the same step.
func (s *Store) publish(k key, c newContent, free func() error, also func(*record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.findLocked(k)
	if err == nil {
		err = free()
	}
	if err != nil || old.SHA256 == c.sum && also == nil {
		return err
	}
	rec := *old
	dir := s.folder(k)
	if old.SHA256 != c.sum {
		rec.SHA256, rec.Volume.Version = c.sum, rec.Volume.Version+1
		rec.Volume.Size, rec.Volume.Entries, rec.Volume.SavedAt = c.writer.size, len(c.writer.folder), time.Now().UTC()
		rec.Content = fmt.Sprintf("v%d%s", rec.Volume.Version, contentSuffix)
		if err := os.Rename(c.file, filepath.Join(dir, rec.Content)); err != nil {
			return err
		}
	}
	if also != nil {
		also(&rec)
	}
	if err := s.write(k, &rec); err != nil {
		return err // the record can be on disk: Open removes the content file that the record does not name
	}
	s.volumes[k] = &rec
	return removeOld(dir, old, &rec)
}

// removeOld removes the files that a record has replaced.
func removeOld(dir string, old, rec *record) (err error) {
	if old.Content != "" && old.Content != rec.Content {
		err = os.Remove(filepath.Join(dir, old.Content))
	}
	if old.Base != "" && old.Base != rec.Base {
		err = errors.Join(err, os.Remove(filepath.Join(dir, old.Base)))
	}
	return err
}

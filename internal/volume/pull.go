package volume

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/bucket"
	"hutch/internal/durable"
)

// errBusy ends a pull because the content may not change now.
var errBusy = errors.New("a sandbox writes to the volume")

// pull makes the content of a volume equal to the changes of its bucket, if free allows that. Links, empty folders and
// permissions, which no bucket has, are kept.
func (s *Store) pull(ctx context.Context, k key, rec record, b *bucket.Bucket, l *listing, old base, free func() error) error {
	if l.equals(old) && rec.Content != "" || len(l.files)+len(l.folders)+len(old) == 0 || free() != nil {
		return nil
	}
	if err := fits(l, rec.Volume); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.folder(k), halfPrefix)
	if err != nil {
		return durable.Explained(err, s.dir)
	}
	defer os.Remove(f.Name()) // it has another name, or is not needed
	defer f.Close()
	p := puller{b: b, l: l, old: old, now: base{}}
	w, sum, err := s.fill(f, rec.Volume, func(w *writer) error {
		return p.build(ctx, w, func(each func(*tar.Header, io.Reader) error) error { return s.eachEntry(k, rec, each) })
	})
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return durable.Explained(err, s.dir)
	}
	err = s.publishPulled(ctx, k, rec, newContent{f.Name(), sum, w}, p.now, free)
	if errors.Is(err, errBusy) {
		return nil
	}
	return durable.Explained(err, s.dir)
}

// publishPulled publishes content of the bucket, with the base that belongs to it.
func (s *Store) publishPulled(ctx context.Context, k key, rec record, c newContent, now base, free func() error) error {
	dir := s.folder(k)
	if err := s.turns.Take(ctx, dir); err != nil {
		return err
	}
	defer s.turns.Put(dir)
	use, err := s.writeBase(k, rec, now)
	if err != nil {
		return err
	}
	return s.publish(k, c, func() error {
		if is, err := s.sameLocked(k, rec); err != nil {
			return err
		} else if is.Volume.Version != rec.Volume.Version || free() != nil {
			return errBusy
		}
		return nil
	}, func(r *record) {
		use(r)
		r.Synced = r.Volume.Version
	})
}

// fits refuses objects that are more than a volume can hold, before any is read.
func fits(l *listing, v hutch.Volume) error {
	left := int64(v.Quota) << 20
	for _, o := range l.files {
		if left -= o.Size; left < 0 || o.Size > int64(v.Quota)<<20 {
			return hutch.Errorf(hutch.Exhausted, "the objects of the bucket are more than the %d MiB that the volume %q can hold: use a prefix with fewer, or a volume with a larger quota", v.Quota, v.Name).With("limit", "volume")
		}
	}
	return nil
}

// eachEntry calls do with each entry of the content that a volume had when rec was read.
func (s *Store) eachEntry(k key, rec record, do func(*tar.Header, io.Reader) error) error {
	f, err := s.openContent(k, rec)
	if err != nil || f == nil {
		return err
	}
	defer f.Close()
	return expand(f, k.name, func(in io.Reader) error {
		for r := tar.NewReader(in); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = do(h, r)
			}
			if err != nil {
				return err
			}
		}
	})
}

// puller builds the content of a volume from its bucket, and from its present content.
type puller struct {
	b        *bucket.Bucket
	l        *listing
	old, now base
}

func (p puller) build(ctx context.Context, w *writer, entries func(func(*tar.Header, io.Reader) error) error) error {
	err := entries(func(h *tar.Header, body io.Reader) error {
		name := strings.TrimSuffix(h.Name, "/")
		if !p.isKept(h, name) {
			return nil
		}
		if h.Typeflag == tar.TypeReg {
			if was, known := p.old[name]; known {
				p.now[name] = was
			}
		}
		return w.add(h, ".", body)
	})
	for _, name := range slices.Sorted(maps.Keys(p.l.folders)) {
		if err == nil {
			err = w.addFolders(name, time.Now())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.l.files)) {
		if _, has := p.now[name]; err == nil && !has {
			err = p.fetch(ctx, w, p.l.files[name], name)
		}
	}
	return err
}

// isKept reports whether an entry of the volume is kept unchanged.
func (p puller) isKept(h *tar.Header, name string) bool {
	o, there := p.l.files[name]
	was, known := p.old[name]
	switch {
	case p.l.blocks(name):
		return false
	case h.Typeflag == tar.TypeDir:
		return !there
	case h.Typeflag == tar.TypeReg && there:
		return known && was.ETag == o.ETag
	case h.Typeflag == tar.TypeReg:
		return !known // else it was deleted in the bucket
	}
	return !there && !p.l.parents[name] && !p.l.folders[name]
}

// fetch adds an object as a file.
func (p puller) fetch(ctx context.Context, w *writer, o bucket.Object, name string) error {
	body, meta, err := p.b.Get(ctx, o)
	if err != nil {
		return err
	}
	defer body.Close()
	sum := sha256.New()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: o.Size, Mode: cmp.Or(meta.Mode, 0o644), ModTime: o.Modified}
	if o.Modified.Year() < 1970 {
		h.ModTime = time.Unix(0, 0)
	}
	if err := w.addFolders(path.Dir(name), h.ModTime); err != nil {
		return err
	}
	if err := w.put(h, io.TeeReader(body, sum)); err != nil {
		return err
	}
	p.now[name] = pair{o.ETag, hex.EncodeToString(sum.Sum(nil))}
	return nil
}

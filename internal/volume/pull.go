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

// errBusy ends a pull because the content must not change now.
var errBusy = errors.New("a sandbox writes to the volume")

// pull applies the changes of a bucket to the content of its volume, if free allows that. Links, empty folders and
// permissions, which no bucket has, are kept.
func (x *exchange) pull(ctx context.Context, free func() error) error {
	if x.l.equals(x.old) && x.rec.Content != "" || len(x.l.files)+len(x.l.folders)+len(x.old) == 0 || free() != nil {
		return nil
	}
	if err := fits(x.l, x.rec.Volume); err != nil {
		return err
	}
	f, err := os.CreateTemp(x.s.folder(x.k), halfPrefix)
	if err != nil {
		return durable.Explained(err, x.s.dir)
	}
	defer os.Remove(f.Name()) // by then the file has another name, or is not needed
	defer f.Close()
	p := puller{x, base{}}
	w, sum, err := x.s.fill(f, x.rec.Volume, func(w *writer) error { return p.build(ctx, w) })
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = p.publish(ctx, newContent{f.Name(), sum, w}, free)
	}
	if errors.Is(err, errBusy) {
		return nil
	}
	return durable.Explained(err, x.s.dir)
}

// publish publishes content of the bucket, with the base that belongs to it.
func (p puller) publish(ctx context.Context, c newContent, free func() error) error {
	dir := p.s.folder(p.k)
	if err := p.s.turns.Take(ctx, dir); err != nil {
		return err
	}
	defer p.s.turns.Put(dir)
	use, err := p.s.writeBase(p.k, p.rec, p.now)
	if err != nil {
		return err
	}
	return p.s.publish(p.k, c, func() error {
		if is, err := p.s.sameLocked(p.k, p.rec); err != nil {
			return err
		} else if is.Volume.Version != p.rec.Volume.Version || free() != nil {
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

// puller builds the content of a volume from its bucket, and from its present content.
type puller struct {
	*exchange
	now base
}

func (p puller) build(ctx context.Context, w *writer) error {
	f, err := p.s.openContent(p.k, p.rec)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	err = eachEntry(f, p.k.name, func(h *tar.Header, body io.Reader) error {
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
		return !known // a known file was deleted in the bucket
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

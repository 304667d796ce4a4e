package volume

import (
	"archive/tar"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"unicode/utf8"

	"hutch"
	"hutch/internal/bucket"
)

const mostKey = 800 // bytes of a path; a key has 1024 with the prefix of the bucket

// localFile is a file of a volume.
type localFile struct {
	sum  string // SHA-256
	etag string // etag that most services give a small object with this content
	size int64
	mode int64
}

// push writes the changes of a volume to its bucket: new or changed files first, then deleted ones. It updates old to
// the state that is equal afterwards. Where both sides have changed a file, the previous object is copied first.
func (x *exchange) push(ctx context.Context) error {
	f, err := x.s.openContent(x.k, x.rec)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	files, err := localFiles(f, x.k.name)
	if err != nil {
		return err
	}
	p := pusher{x, files}
	err = p.putAll(ctx, f)
	if err == nil {
		err = p.deleteAll(ctx)
	}
	use, failed := x.s.writeBase(x.k, x.rec, x.old) // also after an error, so that the objects already written do not count as conflicts
	if failed != nil {
		return errors.Join(err, failed)
	}
	return errors.Join(err, x.s.update(x.k, x.rec, func(r *record) {
		if use(r); err == nil {
			r.Synced = x.rec.Volume.Version
		}
	}))
}

// eachEntry calls do with each entry of a volume's content; f is nil for an empty volume.
func eachEntry(f *os.File, volume string, do func(*tar.Header, io.Reader) error) error {
	if f == nil {
		return nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return expand(f, volume, func(in io.Reader) error {
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

// localFiles reads a volume's content. A file that cannot be an object is refused before any is written.
func localFiles(f *os.File, volume string) (map[string]localFile, error) {
	files := map[string]localFile{}
	err := eachEntry(f, volume, func(h *tar.Header, body io.Reader) error {
		if h.Typeflag != tar.TypeReg {
			return nil
		}
		if !utf8.ValidString(h.Name) || len(h.Name) > mostKey {
			return hutch.Errorf(hutch.Invalid, "the file %.200q cannot be an object of a bucket: give it a shorter name, in UTF-8", h.Name)
		}
		if len(files) >= mostObjects {
			return hutch.Errorf(hutch.Exhausted, "there are more than %d files, which is the most for a bucket: pack small files into archives", mostObjects).With("limit", "volume")
		}
		sum, etag := sha256.New(), md5.New()
		if _, err := io.Copy(io.MultiWriter(sum, etag), body); err != nil {
			return err
		}
		files[h.Name] = localFile{hex.EncodeToString(sum.Sum(nil)), hex.EncodeToString(etag.Sum(nil)), h.Size, permissions(h.FileInfo().Mode())}
		return nil
	})
	return files, err
}

// pusher writes the files of a volume to a bucket.
type pusher struct {
	*exchange
	files map[string]localFile
}

// putAll writes the files that differ from the base.
func (p pusher) putAll(ctx context.Context, f *os.File) error {
	return eachEntry(f, p.k.name, func(h *tar.Header, body io.Reader) error {
		file := p.files[h.Name]
		if h.Typeflag != tar.TypeReg || p.old[h.Name].Sum == file.sum {
			return nil
		}
		o, there := p.l.files[h.Name]
		if there && o.ETag != p.old[h.Name].ETag {
			if same, err := p.keep(ctx, o, file); err != nil || same {
				return err
			}
		}
		etag, err := p.b.Put(ctx, h.Name, body, file.size, bucket.Meta{Sum: file.sum, Mode: file.mode})
		if err == nil {
			p.old[h.Name] = pair{etag, file.sum}
		}
		return err
	})
}

// keep copies an object that was changed in the bucket, before a file replaces it. It reports whether the object has
// the content of the file already.
func (p pusher) keep(ctx context.Context, o bucket.Object, file localFile) (same bool, err error) {
	if same = o.ETag == file.etag; !same {
		meta, err := p.b.Stat(ctx, o)
		if err != nil {
			return false, err
		}
		same = meta.Sum == file.sum && o.Size == file.size
	}
	if same {
		p.old[o.Key] = pair{o.ETag, file.sum}
		return true, nil
	}
	tag := sha256.Sum256([]byte(o.ETag))
	return false, p.b.Copy(ctx, o, o.Key+".bucket-"+hex.EncodeToString(tag[:4]))
}

// deleteAll deletes the objects whose files were deleted, except those that were changed in the bucket.
func (p pusher) deleteAll(ctx context.Context) error {
	for name, was := range p.old {
		if _, here := p.files[name]; here {
			continue
		}
		if o, there := p.l.files[name]; there && o.ETag == was.ETag {
			if err := p.b.Delete(ctx, name); err != nil {
				return err
			}
		}
		delete(p.old, name)
	}
	return nil
}

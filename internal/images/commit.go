package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/erofs/go-erofs"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/image"
	"hutch/internal/oci"
	"hutch/internal/pipe"
)

// CommitImage implements hutch.Images.
func (s *Images) CommitImage(ctx context.Context, sandbox string, req hutch.CommitRequest) (hutch.Image, error) {
	name, err := s.newName(req)
	if err != nil {
		return hutch.Image{}, err
	}
	sb, err := s.opt.Sandbox(ctx, sandbox)
	if err != nil {
		return hutch.Image{}, err
	}
	base, err := baseOf(sb.Image, "the sandbox "+sandbox)
	if err != nil {
		return hutch.Image{}, err
	}
	img, err := s.opt.Store.Commit(ctx, oci.CommitOptions{
		Owner: sb.Owner, Base: base, Name: name, By: "hutch image commit " + sb.ID,
		Fill: func(w io.Writer) error { return s.changes(ctx, sb, base, w) },
	})
	return record(img), err
}

// CommitSnapshot implements hutch.Images.
func (s *Images) CommitSnapshot(ctx context.Context, snapshot string, req hutch.CommitRequest) (made hutch.Image, err error) {
	name, err := s.newName(req)
	if err != nil {
		return hutch.Image{}, err
	}
	err = s.opt.Snapshot(ctx, snapshot, func(snap hutch.Snapshot, files io.Reader) error {
		base, err := baseOf(snap.Image, "the snapshot "+snapshot)
		if err != nil {
			return err
		}
		img, err := s.opt.Store.Commit(ctx, oci.CommitOptions{
			Owner: ownerOf(ctx), Base: base, Name: name, By: "hutch image commit --snapshot " + snap.ID,
			Fill: func(w io.Writer) error {
				_, err := io.Copy(w, files)
				return err
			},
		})
		made = record(img)
		return err
	})
	return made, err
}

func (s *Images) newName(req hutch.CommitRequest) (oci.Reference, error) {
	if err := req.Check(); err != nil {
		return oci.Reference{}, err
	}
	return s.parse(req.Name)
}

// baseOf returns the digest of the image that a sandbox or snapshot began with.
func baseOf(name, whose string) (string, error) {
	if name == image.HostName {
		return "", hutch.Errorf(hutch.Unsupported, "%s began with the image host, this machine's own programs, on which no image can be built: create a sandbox with --image, such as python:3.12-slim, and write the files there; or keep this one with a snapshot", whose)
	}
	ref, err := oci.ParseReference(name)
	return ref.Digest(), err
}

// changes writes the layer with the changes of a sandbox: the files that were written in it, and a whiteout for each
// name of the image that was removed.
func (s *Images) changes(ctx context.Context, sb hutch.Sandbox, base string, w io.Writer) error {
	files, err := s.openFiles(ctx, sb.Owner, base)
	if err != nil {
		return err
	}
	defer files.Close()
	entries := s.opt.Store.Bounds().Entries
	l := layer{tar: tar.NewWriter(w), written: map[string]bool{}, entries: entries, take: caller.From(ctx).Budget.Take}
	if err := pipe.Ahead(func(w io.Writer) error { return s.opt.Written(ctx, sb.ID, w) }, l.addAll); err != nil {
		return err
	}
	names := &image.Names{Entries: entries, TooMany: errManyFiles}
	if err := s.opt.List(ctx, sb.ID, io.MultiWriter(charge{l.take}, names)); err != nil {
		return err
	}
	replaced := func(name string) bool { isFolder, ok := l.written[name]; return ok && !isFolder }
	if err := image.Removed(files, names.String(), nil, replaced, l.addWhiteout); err != nil {
		return err
	}
	return l.tar.Close()
}

// openFiles opens the root file system of an image.
func (s *Images) openFiles(ctx context.Context, owner, digest string) (*rootFiles, error) {
	at, err := s.opt.Store.Root(ctx, owner, digest)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	root, err := erofs.Open(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &rootFiles{root, f}, nil
}

// rootFiles are the files of an image, and the file that they are in.
type rootFiles struct {
	fs.FS
	io.Closer
}

// layer is a layer that is being written.
type layer struct {
	tar     *tar.Writer
	written map[string]bool // names, and whether each is a folder
	entries int             // how many there can be
	take    func(int) bool  // charges memory to the caller, and reports whether there was enough
}

var (
	errManyFiles = hutch.Errorf(hutch.Exhausted, "the sandbox has too many files: remove some").With("limit", "image entries")
	errNoRoom    = hutch.Errorf(hutch.Exhausted, "the names of the sandbox's files take more memory than there is for the requests of this token: wait until other requests have ended, or remove some files").With("limit", "memory of requests")
)

// nameCost is what a name takes in memory besides its bytes.
const nameCost = 64

// add records a name of the archive.
func (l layer) add(name string, isFolder bool) error {
	switch {
	case len(l.written) >= l.entries:
		return errManyFiles
	case !l.take(len(name) + nameCost):
		return errNoRoom
	}
	l.written[name] = isFolder
	return nil
}

// charge is a writer that charges memory for what is written. It charges several times the bytes, because they are in
// memory as a list, as its text, and as the names in it.
type charge struct{ take func(int) bool }

func (c charge) Write(p []byte) (int, error) {
	if !c.take(3*len(p) + nameCost*bytes.Count(p, []byte{0})) {
		return 0, errNoRoom
	}
	return len(p), nil
}

// addAll adds the entries of an archive, which comes from inside of a sandbox.
func (l layer) addAll(r io.Reader) error {
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, r) // data after the end of the archive
			return err
		}
		if err != nil {
			return badFiles(err)
		}
		if err := l.add(strings.TrimPrefix(path.Clean("/"+h.Name), "/"), h.Typeflag == tar.TypeDir); err != nil {
			return err
		}
		if err := l.tar.WriteHeader(h); err != nil {
			return badFiles(err)
		}
		if _, err := io.Copy(l.tar, in); err != nil {
			return badFiles(err)
		}
	}
}

// badFiles explains an archive that cannot be read. Errors that have a kind are about something else.
func badFiles(err error) error {
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the files of the sandbox could not be read completely: stop the programs that write in it, and try again").Because(err)
}

// addWhiteout removes a name of the layers below.
func (l layer) addWhiteout(name string) error {
	if _, ok := l.written[name]; ok { // it was removed after it was packed
		return nil
	}
	dir, base := path.Split(name)
	return l.tar.WriteHeader(&tar.Header{Name: dir + ".wh." + base, Typeflag: tar.TypeReg, Mode: 0o600})
}

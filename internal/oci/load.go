package oci

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/oci/rootfs"
)

// LoadOptions are the settings of a load.
type LoadOptions struct {
	Owner    string
	Name     Reference // another name for the image; the zero value keeps the names in the file
	Platform string    // as in [PullOptions]
}

// mostFiles is how many files an archive of images can have, and mostImages how many images.
const (
	mostFiles  = 10_000
	mostImages = 100
)

// Load reads images from a tar stream: an OCI layout, or the output of `docker save`, plain or compressed. With an
// error, the returned images were loaded, and the others were not.
func (s *Store) Load(ctx context.Context, r io.Reader, o LoadOptions) ([]Image, error) {
	want, err := parsePlatform(o.Platform)
	if err != nil {
		return nil, err
	}
	if err := s.loading.Take(ctx, o.Owner); err != nil {
		return nil, err
	}
	defer s.loading.Put(o.Owner)
	dir, err := os.MkdirTemp(s.path(tempDir), "load-*")
	if err != nil {
		return nil, s.explained(err)
	}
	defer os.RemoveAll(dir)
	a := &archive{s: s, dir: dir, room: s.roomLeft(o.Owner), files: map[string]archived{}, links: map[string]string{}}
	if err := a.read(ctx, r); err != nil {
		return nil, s.explained(err)
	}
	found, err := a.images(ctx, want)
	if err != nil {
		return nil, err
	}
	if !o.Name.IsHost() && len(found) != 1 {
		return nil, hutch.Errorf(hutch.Invalid, "the file holds %d images: one name does for one only; load it without a name", len(found))
	}
	var loaded []Image
	for _, i := range found {
		if !o.Name.IsHost() {
			i.names = []Reference{o.Name}
		}
		image, err := a.add(i, o.Owner, want)
		if err != nil {
			return loaded, s.explained(err)
		}
		loaded = append(loaded, image)
	}
	return loaded, nil
}

// archive is the files of a tar stream, as temporary files.
type archive struct {
	s       *Store
	dir     string
	room    int64 // bytes that the owner can still use
	entries int
	files   map[string]archived
	links   map[string]string
}

type archived struct {
	path, digest string
	size         int64
}

// foundImage is an image of an archive.
type foundImage struct {
	manifest []byte
	document document
	names    []Reference
}

// read keeps the files of a tar stream. No name in the stream becomes the name of a file on disk.
func (a *archive) read(ctx context.Context, r io.Reader) error {
	l := a.s.o.Limits
	plain, err := rootfs.Decompress(ctx, r, "the file", l.Ratio)
	if err != nil {
		return err
	}
	defer plain.Close()
	left := l.Bytes
	for t := tar.NewReader(plain); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return badArchive(ctx, err)
		}
		name := path.Clean("/" + h.Name)
		if a.entries++; a.entries > mostFiles || len(name) > l.Path {
			return hutch.Errorf(hutch.Exhausted, "the file has more than %d entries, or a name of more than %d bytes: it is not an archive of images", mostFiles, l.Path).With("limit", "archive entries")
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			a.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			a.links[name] = path.Clean("/" + h.Linkname)
		case tar.TypeReg:
			if a.room -= h.Size; a.room < 0 {
				return a.s.noRoom(a.room + h.Size)
			}
			if left -= h.Size; left < 0 {
				return hutch.Errorf(hutch.Exhausted, "the file holds more than %d MiB of images: load them one by one", l.Bytes>>20).With("limit", "image bytes")
			}
			if err := a.keep(ctx, name, t); err != nil {
				return err
			}
		}
	}
}

func badArchive(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return hutch.Errorf(hutch.Invalid, "the file is not a tar archive of images, or it is cut off: save it again with `docker save`, or as an OCI layout").Because(err)
}

// keep writes one file of the archive to disk. Each has a separate file on disk, even if two have the same name in the
// archive: a second one must not replace content whose digest was computed.
func (a *archive) keep(ctx context.Context, name string, content io.Reader) error {
	to := filepath.Join(a.dir, strconv.Itoa(a.entries))
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, sum), content)
	if err != nil {
		if _, disk := errors.AsType[*os.PathError](err); disk {
			return err
		}
		return badArchive(ctx, err)
	}
	a.files[name] = archived{to, "sha256:" + hex.EncodeToString(sum.Sum(nil)), size}
	return nil
}

// find returns a file by its name, through links.
func (a *archive) find(name string) (archived, error) {
	at := path.Clean("/" + name)
	for hops := 0; a.links[at] != "" && hops < 10; hops++ {
		at = a.links[at]
	}
	f, ok := a.files[at]
	if !ok {
		return f, hutch.Errorf(hutch.Invalid, "the file has no %.200q, which its images need: save it again", name)
	}
	return f, nil
}

// text returns a small file by its name.
func (a *archive) text(name string) ([]byte, error) {
	f, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if f.size > a.s.o.Limits.Document {
		return nil, hutch.Errorf(hutch.Exhausted, "%.200q in the file has %d bytes: at most %d are allowed", name, f.size, a.s.o.Limits.Document).With("limit", "manifest bytes")
	}
	return os.ReadFile(f.path)
}

// blobName returns the path at which an archive has a blob.
func blobName(digest string) string { return blobFile(digest) }

// images finds the images of an archive. An OCI layout counts before Docker's own list, because new archives have both.
func (a *archive) images(ctx context.Context, want platform) ([]foundImage, error) {
	if _, err := a.find("index.json"); err == nil {
		return a.layoutImages(ctx, want)
	}
	if _, err := a.find("manifest.json"); err == nil {
		return a.dockerImages()
	}
	return nil, hutch.Errorf(hutch.Invalid, "the file has neither index.json nor manifest.json: save it with `docker save`, or as an OCI layout")
}

func (a *archive) layoutImages(ctx context.Context, want platform) ([]foundImage, error) {
	text, err := a.text("index.json")
	if err != nil {
		return nil, err
	}
	index, err := parseDocument(text)
	if err != nil {
		return nil, err
	}
	if len(index.Manifests) == 0 || len(index.Manifests) > mostImages {
		return nil, hutch.Errorf(hutch.Invalid, "the file has %d images: 1 to %d are allowed", len(index.Manifests), mostImages)
	}
	get := func(_ context.Context, digest string) ([]byte, error) { return a.text(blobName(digest)) }
	var found []foundImage
	for _, m := range index.Manifests {
		if !isDigest(m.Digest.String()) {
			return nil, hutch.Errorf(hutch.Unsupported, "the file has the digest %.100s: only sha256 is known here", m.Digest)
		}
		manifest, d, err := resolve(ctx, get, m.Digest.String(), want, a.s.o.Limits.Depth)
		if err != nil {
			return nil, err
		}
		found = append(found, foundImage{manifest, d, layoutNames(m)})
	}
	return found, nil
}

// layoutNames returns the names that an index gives an image. A tag without a name does not count.
func layoutNames(m v1.Descriptor) []Reference {
	for _, annotation := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		text := m.Annotations[annotation]
		if ref, err := parseNamed(text); err == nil && hasTag(text) {
			return []Reference{ref}
		}
	}
	return nil
}

// dockerImages makes a manifest of each image in Docker's own list.
func (a *archive) dockerImages() ([]foundImage, error) {
	text, err := a.text("manifest.json")
	if err != nil {
		return nil, err
	}
	var list []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := decode(text, &list); hutch.KindOf(err) == hutch.Exhausted {
		return nil, err
	} else if err != nil || len(list) == 0 || len(list) > mostImages {
		return nil, hutch.Errorf(hutch.Invalid, "manifest.json in the file cannot be read, or does not list 1 to %d images: save it again", mostImages)
	}
	var found []foundImage
	for _, entry := range list {
		i := foundImage{}
		for _, tag := range entry.RepoTags {
			if ref, err := parseNamed(tag); err == nil {
				i.names = append(i.names, ref)
			}
		}
		if i.manifest, i.document, err = a.manifest(entry.Config, entry.Layers); err != nil {
			return nil, err
		}
		found = append(found, i)
	}
	return found, nil
}

func (a *archive) manifest(config string, layers []string) ([]byte, document, error) {
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	var err error
	if m.Config, err = a.descriptor(config, types.OCIConfigJSON); err != nil {
		return nil, document{}, err
	}
	for _, name := range layers {
		l, err := a.descriptor(name, types.OCIUncompressedLayer)
		if err != nil {
			return nil, document{}, err
		}
		m.Layers = append(m.Layers, l)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, document{}, err
	}
	d, err := parseDocument(text)
	return text, d, err
}

func (a *archive) descriptor(name string, kind types.MediaType) (v1.Descriptor, error) {
	f, err := a.find(name)
	if err != nil {
		return v1.Descriptor{}, err
	}
	digest, err := v1.NewHash(f.digest)
	return v1.Descriptor{MediaType: kind, Size: f.size, Digest: digest}, err
}

// add moves the blobs of an image into the store, and then writes its record.
func (a *archive) add(i foundImage, owner string, want platform) (Image, error) {
	s := a.s
	if err := s.check(i.document); err != nil {
		return Image{}, err
	}
	byDigest := map[string]archived{}
	for _, f := range a.files {
		byDigest[f.digest] = f
	}
	configFile, ok := byDigest[i.document.Config.Digest.String()]
	if !ok || configFile.size > s.o.Limits.Document {
		return Image{}, notInFile(i.document.Config.Digest.String())
	}
	config, err := os.ReadFile(configFile.path)
	if err != nil {
		return Image{}, err
	}
	r, err := s.describe(i.manifest, i.document, config, want)
	if err != nil {
		return Image{}, err
	}
	defer s.pin(documentFiles(i.manifest, i.document)...)()
	for _, l := range r.Layers {
		f, ok := byDigest[l.Digest]
		switch {
		case ok && f.size == l.Size:
			err = s.linkBlob(f)
		case !s.holds(owner, l.Digest, l.Size):
			err = notInFile(l.Digest)
		}
		if err != nil {
			return Image{}, err
		}
	}
	return s.keep(r, i.manifest, config, owner, i.names...)
}

func notInFile(digest string) error {
	return hutch.Errorf(hutch.Invalid, "the file does not have %s, or has it damaged: save it again", digest)
}

// linkBlob gives a file of an archive its name in the store; another image of the archive can need it, too.
func (s *Store) linkBlob(f archived) error {
	name := blobFile(f.digest)
	if s.size(name) == f.size {
		return nil
	}
	again := f.path + ".blob"
	if err := errors.Join(durable.Sync(f.path), os.Link(f.path, again)); err != nil {
		return err
	}
	return s.rename(again, name)
}

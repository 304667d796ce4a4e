// Package images offers the images of a store as verbs, and finds the image and the root file system of a name for the
// engine.
//
// A name is resolved once, when a sandbox is created: [Images.Resolve] checks that the owner may have the image, pulls
// it when it is missing, and returns a name that ends with its digest. Records keep that name. From then on
// [Images.Root] needs no owner: it turns the digest into a root file system.
package images

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/buildlog"
	"hutch/internal/caller"
	"hutch/internal/image"
	"hutch/internal/oci"
)

// Options are the settings of images.
type Options struct {
	Store *oci.Store
	// Host returns the root of the image "host": this machine's programs.
	Host func(ctx context.Context, name string) (image.Root, error)
	// Login returns an owner's login for a registry, if it has one.
	Login func(owner, registry string) (hutch.RegistryLogin, bool)
	// Began lists the images that sandboxes and snapshots began with, by the names that Resolve gave.
	Began func(context.Context) ([]string, error)
	// Sandbox returns the record of a sandbox of the caller, Written writes the files that were written in it over its
	// image, as a tar archive, and List writes the names of all files in it, each with a zero byte at its end.
	Sandbox       func(ctx context.Context, id string) (hutch.Sandbox, error)
	Written, List func(ctx context.Context, id string, w io.Writer) error
	// Snapshot calls read with a snapshot that the caller can use, and the files that were written over its image, as a
	// tar archive.
	Snapshot func(ctx context.Context, id string, read func(hutch.Snapshot, io.Reader) error) error
	// Build makes an image of a Dockerfile; nil for a server that cannot.
	Build func(ctx context.Context, req hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error, cut func(line []byte, most int) int) (oci.Image, error)
	// Authority is the certificate that programs must trust in addition to those of the image; nil for none.
	Authority []byte
}

// Images is a hutch.Images.
type Images struct {
	opt    Options
	builds buildlog.Log

	// removing is held while images are removed, including the check of which sandboxes use them. Root locks it at its
	// end: a sandbox is listed before its root is requested, so either the removal sees the sandbox, or Root sees the
	// removal.
	removing sync.RWMutex

	mu    sync.Mutex
	roots map[string]image.Root // by digest
}

var _ hutch.Images = (*Images)(nil)

// New returns the images of a store.
func New(opt Options) *Images { return &Images{opt: opt, roots: map[string]image.Root{}} }

// ownerOf returns the owner of the call; empty for the server itself.
func ownerOf(ctx context.Context) string {
	owner, _ := caller.OwnerOf(ctx)
	return owner.ID
}

// registriesOf returns which of the server's registries the caller can use; empty for all of them.
func registriesOf(ctx context.Context) []string {
	owner, _ := caller.OwnerOf(ctx)
	return owner.Registries
}

// PullImage implements hutch.Images.
func (s *Images) PullImage(ctx context.Context, req hutch.PullRequest, progress func(hutch.Transfer) error) (hutch.Image, error) {
	if err := req.Check(); err != nil {
		return hutch.Image{}, err
	}
	ref, err := s.parse(req.Image)
	if err != nil {
		return hutch.Image{}, err
	}
	owner := ownerOf(ctx)
	if req.Shared {
		owner = ""
	}
	policy := cmp.Or(req.Pull, hutch.PullAlways)
	r, ctx := reporting(ctx, progress)
	defer r.end()
	img, err := s.opt.Store.Pull(ctx, ref, oci.PullOptions{
		Owner: owner, Policy: policy, Credentials: s.credentials(ownerOf(ctx), ref, req.RegistryLogin), Allowed: registriesOf(ctx), Progress: r.take,
	})
	return record(img), r.cause(err)
}

// pullable refuses a name that no registry has.
func pullable(ref oci.Reference) error {
	if ref.IsHost() {
		return hutch.Errorf(hutch.Invalid, "the image host is this machine's own programs: there is nothing to pull or push").Naming(hutch.AboutField, "image")
	}
	return nil
}

// LoadImages implements hutch.Images.
func (s *Images) LoadImages(ctx context.Context, name string, r io.Reader) ([]hutch.Image, error) {
	var ref oci.Reference
	if name != "" {
		var err error
		if ref, err = s.parse(name); err != nil {
			return nil, err
		}
	}
	list, err := s.opt.Store.Load(ctx, r, oci.LoadOptions{Owner: ownerOf(ctx), Name: ref})
	return records(list), err
}

// BuildImage implements hutch.Images.
func (s *Images) BuildImage(ctx context.Context, req hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error) (_ hutch.Image, err error) {
	if s.opt.Build == nil {
		return hutch.Image{}, hutch.Errorf(hutch.Unsupported, "images are built by a server: start one with hutch serve")
	}
	if err := req.Check(); err != nil {
		return hutch.Image{}, err
	}
	if req.Name != "" {
		if _, err := s.parse(req.Name); err != nil {
			return hutch.Image{}, err
		}
	}
	ctx, b, err := s.builds.Begin(ctx, ownerOf(ctx), req)
	if err != nil {
		return hutch.Image{}, err
	}
	stop := func() bool { return true }
	if arriving, ok := files.(interface{ Interrupt() }); ok { // a client that sends nothing must not delay the end
		stop = context.AfterFunc(ctx, arriving.Interrupt)
	}
	report := func(e hutch.BuildEvent) error {
		if e.State != hutch.BuildQueued {
			b.Add(e)
		}
		if progress == nil {
			return nil
		}
		return progress(e)
	}
	var img oci.Image
	failed := error(errPanicked)
	defer func() { // also when the build panics
		stop() // before End, which ends ctx: otherwise the end of a build would interrupt its connection
		err = b.End(ctx, img.Digest, failed)
	}()
	if failed = report(hutch.BuildEvent{State: hutch.BuildQueued, Build: b.ID()}); failed == nil {
		failed = errPanicked
		img, failed = s.opt.Build(ctx, req, files, report, b.Cut)
	}
	return record(img), failed
}

// errPanicked is the error in the record of a build that ended with a panic.
var errPanicked = hutch.AsError(errors.New("the build panicked"))

// Builds implements hutch.Images.
func (s *Images) Builds(ctx context.Context) ([]hutch.Build, error) {
	owner, one := caller.OwnerOf(ctx)
	return s.builds.List(owner.ID, !one), nil
}

// BuildLogs implements hutch.Images.
func (s *Images) BuildLogs(ctx context.Context, build string, follow bool, out func(hutch.BuildEvent) error) (hutch.Build, error) {
	owner, one := caller.OwnerOf(ctx)
	return s.builds.Read(ctx, owner.ID, !one, build, follow, out)
}

// DeleteBuild implements hutch.Images.
func (s *Images) DeleteBuild(ctx context.Context, build string) error {
	owner, one := caller.OwnerOf(ctx)
	return s.builds.Delete(ctx, owner.ID, !one, build)
}

// Digest returns the digest of the image with a name. The image is pulled if it is missing.
func (s *Images) Digest(ctx context.Context, name string, pull hutch.PullPolicy) (string, error) {
	pinned, err := s.Resolve(ctx, name, pull)
	if err != nil {
		return "", err
	}
	ref, err := oci.ParseReference(pinned)
	if err == nil && ref.IsHost() {
		err = pullable(ref)
	}
	return ref.Digest(), err
}

// SaveImage implements hutch.Images.
func (s *Images) SaveImage(ctx context.Context, image string, w io.Writer) error {
	ref, err := s.parse(image)
	if err != nil {
		return err
	}
	return s.opt.Store.Save(ctx, w, ownerOf(ctx), ref)
}

// PushImage implements hutch.Images.
func (s *Images) PushImage(ctx context.Context, req hutch.PushRequest, progress func(hutch.Transfer) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	from, err := s.parse(req.Image)
	if err != nil {
		return err
	}
	to, owner := from, ownerOf(ctx)
	if req.To != "" {
		if to, err = s.parse(req.To); err != nil {
			return err
		}
		if err := s.opt.Store.Tag(owner, from, to); err != nil {
			return err
		}
	}
	r, ctx := reporting(ctx, progress)
	defer r.end()
	_, err = s.opt.Store.Push(ctx, to, oci.PushOptions{Owner: owner, Credentials: s.credentials(owner, to, req.RegistryLogin), Allowed: registriesOf(ctx), Progress: r.take})
	return r.cause(err)
}

// TagImage implements hutch.Images.
func (s *Images) TagImage(ctx context.Context, image, name string) (hutch.Image, error) {
	from, err := s.parse(image)
	if err != nil {
		return hutch.Image{}, err
	}
	to, err := s.parse(name)
	if err == nil {
		err = s.opt.Store.Tag(ownerOf(ctx), from, to)
	}
	if err != nil {
		return hutch.Image{}, err
	}
	return s.Image(ctx, name)
}

// Image implements hutch.Images.
func (s *Images) Image(ctx context.Context, image string) (hutch.Image, error) {
	ref, err := s.parse(image)
	if err != nil {
		return hutch.Image{}, err
	}
	img, err := s.opt.Store.Inspect(ownerOf(ctx), ref)
	return record(img), err
}

// Images implements hutch.Images.
func (s *Images) Images(ctx context.Context) ([]hutch.Image, error) {
	list := slices.DeleteFunc(s.opt.Store.Images(ownerOf(ctx)), func(img oci.Image) bool { return img.Step })
	slices.Reverse(list) // the oldest first, as all lists of Hutch
	return records(list), nil
}

// DeleteImage implements hutch.Images.
func (s *Images) DeleteImage(ctx context.Context, image string) error {
	ref, err := s.parse(image)
	if err != nil {
		return err
	}
	release, err := s.keep(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.opt.Store.Remove(ownerOf(ctx), ref)
}

// PruneImages implements hutch.Images.
func (s *Images) PruneImages(ctx context.Context, req hutch.PruneRequest) (hutch.Pruned, error) {
	if err := req.Check(); err != nil {
		return hutch.Pruned{}, err
	}
	unused := max(req.Unused.Duration(), time.Nanosecond) // for the store, zero sets no condition
	return s.prune(ctx, ownerOf(ctx), oci.PruneOptions{Unused: unused, Roots: unused})
}

// Sweep removes the images of all owners that were not used for unused, and the root file systems of images that were
// not used for roots; zero removes none. A root file system is made again when a sandbox needs it.
func (s *Images) Sweep(ctx context.Context, unused, roots time.Duration) (hutch.Pruned, error) {
	return s.prune(caller.WithoutOwner(ctx), "", oci.PruneOptions{Unused: unused, Roots: roots})
}

func (s *Images) prune(ctx context.Context, owner string, o oci.PruneOptions) (hutch.Pruned, error) {
	release, err := s.keep(ctx)
	if err != nil {
		return hutch.Pruned{}, err
	}
	defer release()
	p, err := s.opt.Store.Prune(ctx, owner, o)
	answer := hutch.Pruned{Images: []string{}, Freed: p.Bytes}
	for _, img := range p.Images {
		answer.Images = append(answer.Images, img.Digest)
	}
	return answer, err
}

// keep marks every image that a sandbox or a snapshot began with as used. The marks stay until release is called, and
// until then no other sandbox can get a root.
func (s *Images) keep(ctx context.Context) (release func(), err error) {
	s.removing.Lock()
	names, err := s.opt.Began(ctx)
	if err != nil {
		s.removing.Unlock()
		return nil, err
	}
	used := map[string]bool{}
	for _, name := range names {
		if ref, err := oci.ParseReference(name); err == nil {
			used[ref.Digest()] = true
		}
	}
	var all []func()
	for _, img := range s.opt.Store.Images("") {
		if used[img.Digest] { // used by any owner: a sandbox from a shared snapshot needs another owner's image
			all = append(all, s.opt.Store.Use(img.Owner, img.Digest))
		}
	}
	return func() {
		for _, release := range all {
			release()
		}
		s.removing.Unlock()
	}, nil
}

func (s *Images) parse(text string) (oci.Reference, error) {
	if err := hutch.CheckImage(text); err != nil {
		return oci.Reference{}, err
	}
	ref, err := oci.ParseReference(text)
	if err == nil {
		err = pullable(ref)
	}
	return ref, err
}

// credentials returns the credentials of the request, or else the credentials that the owner has stored. The
// credentials of the request are for the registry that the reference names, not for its mirrors.
func (s *Images) credentials(owner string, ref oci.Reference, given hutch.RegistryLogin) oci.Credentials {
	return func(registry string) (oci.Credential, bool) {
		login, ok := given, given != hutch.RegistryLogin{} && registry == ref.Registry()
		if !ok && s.opt.Login != nil {
			login, ok = s.opt.Login(owner, registry)
		}
		return oci.Credential{Username: login.Username, Password: login.Password}, ok
	}
}

package oci

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/oci/registry"
)

// PullOptions are the settings of a pull.
type PullOptions struct {
	Owner       string
	Policy      hutch.PullPolicy // default hutch.PullMissing
	Platform    string           // linux/arm64 or linux/arm/v7; empty is the server's
	Credentials Credentials      // nil for an anonymous caller
	Allowed     []string         // registries that this caller can use, among the store's; empty allows all of the store's
	Progress    func(Progress)   // called by one goroutine at a time; must not wait
}

// Credentials return the login for a registry; false for an anonymous caller.
type Credentials = registry.Credentials

// Credential is a name and a password.
type Credential = registry.Credential

// Progress is the progress of a pull or a push.
type Progress struct {
	Layer string `json:"layer,omitempty"` // digest; empty for a whole push
	Done  int64  `json:"done"`            // bytes
	Total int64  `json:"total"`           // bytes
	State string `json:"state"`           // present, downloading, done or uploading
}

// Pull makes an image present. The reference is resolved to a digest once. Callers that pull the same image at once
// share one transfer, which ends when the last of them has cancelled.
func (s *Store) Pull(ctx context.Context, ref Reference, o PullOptions) (Image, error) {
	want, err := parsePlatform(o.Platform)
	if err != nil {
		return Image{}, err
	}
	switch o.Policy {
	case "", hutch.PullMissing, hutch.PullNever:
		image, err := s.Inspect(o.Owner, ref)
		if err == nil && want.matches(platform{image.OS, image.Architecture, ""}) {
			s.touch(key{o.Owner, image.Digest})
			return image, nil
		}
		if o.Policy == hutch.PullNever {
			return image, err
		}
	case hutch.PullAlways:
	default:
		return Image{}, hutch.Errorf(hutch.Invalid, "%.100q is not a pull policy: write always, missing or never", o.Policy)
	}
	if err := needsRegistry(ref); err != nil {
		return Image{}, err
	}
	if err := allow(ref, s.o.Allowed, o.Allowed); err != nil {
		return Image{}, err
	}
	f, leave := s.join(flightKey{o.Owner, ref, want}, o)
	defer leave()
	select {
	case <-f.done:
		return f.image, f.err
	case <-ctx.Done():
		return Image{}, context.Cause(ctx)
	}
}

type flightKey struct {
	owner    string
	ref      Reference
	platform platform
}

// flight is a pull that its callers share.
type flight struct {
	done   chan struct{} // closed when image and err are set
	image  Image
	err    error
	cancel context.CancelFunc
	users  int // guarded by Store.mu

	mu       sync.Mutex
	last     map[string]Progress
	watchers map[*PullOptions]bool
}

// join finds the flight of a key, or begins it. The caller must leave it in any case.
func (s *Store) join(k flightKey, o PullOptions) (*flight, func()) {
	f := s.board(k, o)
	f.watch(&o)
	return f, func() { s.leave(k, f, &o) }
}

// board counts one more caller of the flight.
func (s *Store) board(k flightKey, o PullOptions) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[k]
	if f == nil {
		ctx, cancel := context.WithCancel(s.ctx)
		f = &flight{done: make(chan struct{}), cancel: cancel, last: map[string]Progress{}, watchers: map[*PullOptions]bool{}}
		s.flights[k] = f
		s.work.Go(func() {
			f.image, f.err = s.pull(ctx, k, o.Credentials, f.report)
			s.forget(k, f)
			cancel()
			close(f.done)
		})
	}
	f.users++
	return f
}

// leave ends a flight when its last caller leaves.
func (s *Store) leave(k flightKey, f *flight, o *PullOptions) {
	f.mu.Lock()
	delete(f.watchers, o)
	f.mu.Unlock()
	s.mu.Lock()
	f.users--
	last := f.users == 0
	s.mu.Unlock()
	if last {
		s.forget(k, f)
		f.cancel()
	}
}

// forget makes the next caller begin another flight.
func (s *Store) forget(k flightKey, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights[k] == f {
		delete(s.flights, k)
	}
}

// watch reports the progress of the flight to a caller, from now on.
func (f *flight) watch(o *PullOptions) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.Progress == nil {
		return
	}
	f.watchers[o] = true
	for p := range maps.Values(f.last) {
		o.Progress(p)
	}
}

func (f *flight) report(p Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[p.Layer] = p
	for o := range f.watchers {
		o.Progress(p)
	}
}

// pull fetches everything that an image needs, and then writes its record.
func (s *Store) pull(ctx context.Context, k flightKey, c Credentials, report func(Progress)) (Image, error) {
	repo, err := registry.Open(k.ref.registry, k.ref.repository, registry.Options{Settings: s.o.Registries[k.ref.registry], Credentials: c, IdleTimeout: s.o.IdleTimeout, Proxy: s.o.Proxy})
	if err != nil {
		return Image{}, err
	}
	defer repo.Close()
	get := func(ctx context.Context, identifier string) ([]byte, error) {
		return repo.Manifest(ctx, identifier, s.o.Limits.Document)
	}
	manifest, d, err := resolve(ctx, get, k.ref.identifier(), k.platform, s.o.Limits.Depth)
	if err != nil {
		return Image{}, err
	}
	if err := s.check(d); err != nil {
		return Image{}, err
	}
	defer s.pin(documentFiles(manifest, d)...)()
	t := &transfer{s, repo, k.owner, report}
	config, err := t.document(ctx, *d.Config)
	if err != nil {
		return Image{}, err
	}
	r, err := s.describe(manifest, d, config, k.platform)
	if err != nil {
		return Image{}, err
	}
	release, err := s.takeRoom(k.owner, s.missing(k.owner, r.Layers))
	if err != nil {
		return Image{}, err
	}
	defer release()
	if err := t.layers(ctx, r.Layers); err != nil {
		return Image{}, err
	}
	return s.keep(r, manifest, config, k.owner, k.ref)
}

// documentFiles returns the paths below the store that a manifest needs.
func documentFiles(manifest []byte, d document) []string {
	files := []string{blobFile(digestOf(manifest)), blobFile(d.Config.Digest.String())}
	for _, l := range d.Layers {
		files = append(files, blobFile(l.Digest.String()))
	}
	return files
}

// keep writes the documents of an image whose layers are complete, and its record after them.
func (s *Store) keep(r record, manifest, config []byte, owner string, names ...Reference) (Image, error) {
	for _, document := range [][]byte{config, manifest} {
		if err := s.writeDocument(document); err != nil {
			return Image{}, s.explained(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.addLocked(r, owner, names...); err != nil {
		return Image{}, s.explained(err)
	}
	return s.records[key{owner, r.Digest}].clone(), nil
}

// atOnce is how many layers of one image are fetched at the same time.
const atOnce = 3

// layers fetches missing layers. The first error ends the others.
func (t *transfer) layers(ctx context.Context, layers []Layer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	defer work.Wait()
	slots, fetched := make(chan struct{}, atOnce), map[string]bool{}
	for _, l := range layers {
		if fetched[l.Digest] {
			continue
		}
		fetched[l.Digest] = true
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		work.Go(func() {
			defer func() { <-slots }()
			if err := t.layer(ctx, l); err != nil {
				cancel(err)
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}

// document fetches a configuration.
func (t *transfer) document(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	var content []byte
	err := t.retry(ctx, func() error {
		body, _, err := t.repo.Blob(ctx, d.Digest.String(), 0)
		if err != nil {
			return err
		}
		defer body.Close()
		content, err = readExactly(body, d.Size)
		return err
	})
	if err == nil && digestOf(content) != d.Digest.String() {
		err = wrongContent(d.Digest.String())
	}
	return content, err
}

// pauses are the times between the tries for one blob.
var pauses = []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}

package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/image"
	"hutch/internal/oci"
)

// Resolve returns the name under which a new sandbox of the caller keeps its image:
// "host", or a reference that ends with the digest. An image that the server does
// not have is pulled.
func (s *Images) Resolve(ctx context.Context, name string, pull hutch.PullPolicy) (string, error) {
	if name == "" || name == image.HostName {
		return image.HostName, nil
	}
	ref, err := s.parse(name)
	if err != nil {
		return "", err
	}
	owner, policy := ownerOf(ctx), pull
	if ref.IsLocal() {
		policy = hutch.PullNever
	}
	r, ctx := reporting(ctx, caller.From(ctx).Pulls)
	defer r.end()
	img, err := s.opt.Store.Pull(ctx, ref, oci.PullOptions{
		Owner: owner, Policy: policy, Credentials: s.credentials(owner, ref, hutch.RegistryLogin{}), Allowed: registriesOf(ctx), Progress: r.take,
	})
	if err != nil {
		return "", r.cause(err)
	}
	return pinned(ref, img.Digest), nil
}

// pinned returns a reference with the digest that it has now.
func pinned(ref oci.Reference, digest string) string {
	name, _, _ := strings.Cut(ref.String(), "@")
	if ref.Repository() == "" { // the image has no name
		return digest
	}
	return name + "@" + digest
}

// Root returns the root file system of an image, by a name that Resolve returned.
func (s *Images) Root(ctx context.Context, name string) (image.Root, error) {
	if name == image.HostName {
		return s.opt.Host(ctx, name)
	}
	ref, err := oci.ParseReference(name)
	if err != nil {
		return image.Root{}, err
	}
	if ref.Digest() == "" {
		return image.Root{}, hutch.AsError(fmt.Errorf("the image %q of a record has no digest", name))
	}
	s.mu.Lock()
	root, ok := s.roots[ref.Digest()]
	s.mu.Unlock()
	if ok && s.present(root, ref.Digest()) == nil {
		return root, nil
	}
	if root, err = s.open(ctx, ref.Digest()); err == nil {
		err = s.present(root, ref.Digest())
	}
	if err != nil {
		return image.Root{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roots[ref.Digest()] = root
	return root, nil
}

// present waits for removals that have begun, and then returns an error if a root or its image no longer exists.
func (s *Images) present(root image.Root, digest string) error {
	s.removing.RLock()
	defer s.removing.RUnlock()
	if _, err := s.find(digest); err != nil {
		return err
	}
	if _, err := os.Stat(root.EROFS); err != nil {
		return hutch.Errorf(hutch.Unavailable, "the root file system of the image %s was just removed: try again", digest).Because(err)
	}
	return nil
}

// open makes the root file system of an image, unless it exists.
func (s *Images) open(ctx context.Context, digest string) (image.Root, error) {
	img, err := s.find(digest)
	if err != nil {
		return image.Root{}, err
	}
	defer s.opt.Store.Use(img.Owner, digest)()
	path, err := s.opt.Store.Root(ctx, img.Owner, digest)
	if err != nil {
		return image.Root{}, err
	}
	opt := image.EROFSOptions{Env: img.Config.Env, WorkingDir: img.Config.WorkingDir, Authority: s.opt.Authority}
	user, err := s.opt.Store.User(ctx, img.Owner, digest, "")
	if err != nil {
		return image.Root{}, err
	}
	account := image.FromUser(user)
	opt.User = &account
	root, err := image.FromEROFS(path, opt)
	root.Program = image.Program{Command: slices.Concat(img.Config.Entrypoint, img.Config.Cmd), Care: care(img.Config)}
	if errors.Is(err, image.ErrFolder) {
		err = hutch.Errorf(hutch.Invalid, "the image has a working folder, or its user a home, with a path that no system takes: have it built again").Naming(hutch.AboutField, "image").Because(err)
	}
	return root, err
}

// find returns the image of a digest, of any owner.
func (s *Images) find(digest string) (oci.Image, error) {
	for _, img := range s.opt.Store.Images("") {
		if img.Digest == digest {
			return img, nil
		}
	}
	return oci.Image{}, hutch.Errorf(hutch.NotFound, "the image %s is no longer on this server: pull it again", digest).Naming(hutch.AboutField, "image")
}

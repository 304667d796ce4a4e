package volume

import (
	"context"
	"fmt"
	"io"
	"strings"

	"hutch"
	"hutch/internal/caller"
)

// The memory of compression for one request, in bytes.
const (
	readMemory  = 4 << 20
	writeMemory = 8 << 20
)

// ServiceOptions are the settings of the verbs on volumes.
type ServiceOptions struct {
	Store *Store
	// Uses lists the sandboxes of an owner that have volumes, by the volume's name.
	Uses func(owner string) map[string][]hutch.VolumeUse
	// Save saves the volumes that a sandbox of the caller can write to, and returns their names.
	Save func(ctx context.Context, sandbox string) ([]string, error)
}

// Service implements hutch.Volumes.
type Service struct{ opt ServiceOptions }

var _ hutch.Volumes = (*Service)(nil)

// NewService returns the verbs on the volumes of a store.
func NewService(opt ServiceOptions) *Service { return &Service{opt} }

func ownerOf(ctx context.Context) string {
	owner, _ := caller.OwnerOf(ctx)
	return owner.ID
}

// CreateVolume implements hutch.Volumes.
func (s *Service) CreateVolume(ctx context.Context, req hutch.VolumeRequest) (hutch.Volume, error) {
	owner := ownerOf(ctx)
	if err := req.Check(); err != nil {
		return hutch.Volume{}, err
	}
	if req.Bucket != nil {
		if err := s.opt.Store.CheckBucket(ctx, owner, *req.Bucket); err != nil {
			return hutch.Volume{}, err
		}
	}
	return s.opt.Store.Create(owner, req)
}

// Volumes implements hutch.Volumes.
func (s *Service) Volumes(ctx context.Context) ([]hutch.Volume, error) {
	owner := ownerOf(ctx)
	list, uses := s.opt.Store.List(owner), s.opt.Uses(owner)
	for i := range list {
		list[i].Uses = append(list[i].Uses, uses[list[i].Name]...)
	}
	return list, nil
}

// Volume implements hutch.Volumes.
func (s *Service) Volume(ctx context.Context, name string) (hutch.Volume, error) {
	if err := hutch.CheckVolume(name); err != nil {
		return hutch.Volume{}, err
	}
	owner := ownerOf(ctx)
	v, err := s.opt.Store.Find(owner, name)
	if err == nil {
		v.Uses = append(v.Uses, s.opt.Uses(owner)[name]...)
	}
	return v, err
}

// DeleteVolume implements hutch.Volumes.
func (s *Service) DeleteVolume(ctx context.Context, name string, force bool) error {
	if err := hutch.CheckVolume(name); err != nil {
		return err
	}
	owner := ownerOf(ctx)
	return s.opt.Store.Remove(ctx, owner, name, force, func() error {
		if uses := s.opt.Uses(owner)[name]; len(uses) > 0 {
			return hutch.Errorf(hutch.Conflict, "the volume %q is in use by %s: destroy that first", name, listed(uses))
		}
		return nil
	})
}

// listed returns the ids of the sandboxes in uses. If there are many, it returns the first five and the number of the rest.
func listed(uses []hutch.VolumeUse) string {
	const most = 5
	var names []string
	for _, u := range uses[:min(len(uses), most)] {
		names = append(names, u.SandboxID)
	}
	text := "the sandbox " + strings.Join(names, ", ")
	if more := len(uses) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ReadVolume implements hutch.Volumes.
func (s *Service) ReadVolume(ctx context.Context, name, path string, w io.Writer) error {
	if err := hutch.CheckVolume(name); err != nil {
		return err
	}
	if !caller.From(ctx).Budget.Take(readMemory) {
		return errNoRoom
	}
	return s.opt.Store.ReadPath(ownerOf(ctx), name, path, w)
}

// WriteVolume implements hutch.Volumes.
func (s *Service) WriteVolume(ctx context.Context, name, path string, r io.Reader) (hutch.Volume, error) {
	if err := hutch.CheckVolume(name); err != nil {
		return hutch.Volume{}, err
	}
	owner := ownerOf(ctx)
	free := func() error { return s.unwritten(owner, name) }
	if err := free(); err != nil { // before anything is sent
		return hutch.Volume{}, err
	}
	if !caller.From(ctx).Budget.Take(writeMemory) {
		return hutch.Volume{}, errNoRoom
	}
	if err := s.opt.Store.Write(ctx, owner, name, path, r, free); err != nil {
		return hutch.Volume{}, err
	}
	return s.Volume(ctx, name)
}

// unwritten refuses to change the content of a volume to which a sandbox can write.
func (s *Service) unwritten(owner, name string) error {
	for _, u := range s.opt.Uses(owner)[name] {
		if !u.ReadOnly {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q writes to the volume %q, and its next save would undo this: copy the files into that sandbox, or destroy it first", u.SandboxID, name)
		}
	}
	return nil
}

// SyncVolume implements hutch.Volumes.
func (s *Service) SyncVolume(ctx context.Context, name string) (hutch.Volume, error) {
	v, err := s.Volume(ctx, name)
	if err == nil && v.Bucket == nil {
		err = hutch.Errorf(hutch.Invalid, "the volume %q has no bucket: give it one when you create it", name)
	}
	if err != nil {
		return hutch.Volume{}, err
	}
	owner := ownerOf(ctx)
	if err := s.opt.Store.Sync(ctx, owner, name, func() error { return s.unwritten(owner, name) }); err != nil {
		return hutch.Volume{}, err
	}
	return s.Volume(ctx, name)
}

// SaveVolumes implements hutch.Volumes.
func (s *Service) SaveVolumes(ctx context.Context, sandbox string) ([]hutch.Volume, error) {
	names, err := s.opt.Save(ctx, sandbox)
	list := []hutch.Volume{}
	for _, name := range names {
		if err == nil {
			err = s.opt.Store.Sync(ctx, ownerOf(ctx), name, neverFree)
		}
		v, missing := s.Volume(ctx, name)
		if err == nil {
			err = missing
		}
		list = append(list, v)
	}
	return list, err
}

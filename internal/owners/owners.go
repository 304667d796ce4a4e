// Package owners lists for an administrator what each owner has, and deletes it. It calls the same verbs as the owner
// itself, in the owner's name, so it does not know how data is stored.
package owners

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// Options are the stores with the data of owners. All are required.
type Options struct {
	Service hutch.Service
	Tokens  hutch.Tokens
	Volumes hutch.Volumes
	Images  hutch.Images
	Backups hutch.Backups
	Secrets hutch.Secrets
	// Keys deletes the SSH keys of an owner; nil for none.
	Keys func(ctx context.Context, owner string) error
	// More lists further owners: owners of volumes and secrets, because no verb lists these for all owners.
	More func() []string
	// Unreached returns an error if an owner can have data that none of the other fields can reach now; nil if they
	// always reach all data.
	Unreached func() error
	// Forget removes the timelines of an owner's sandboxes; nil if there are none.
	Forget func(owner string) error
}

// Service implements hutch.Owners.
type Service struct{ opt Options }

var _ hutch.Owners = (*Service)(nil)

// New returns a Service.
func New(opt Options) *Service { return &Service{opt} }

// Owners implements hutch.Owners.
func (s *Service) Owners(ctx context.Context) ([]hutch.Owned, error) {
	ids, err := s.ids(ctx)
	list := []hutch.Owned{}
	for _, id := range ids {
		if err != nil {
			break
		}
		var o hutch.Owned
		o, err = s.owned(ctx, id)
		list = append(list, o)
	}
	return list, err
}

// ids lists all owners but the server.
func (s *Service) ids(ctx context.Context) ([]string, error) {
	server := caller.WithoutOwner(ctx)
	tokens, err1 := s.opt.Tokens.Tokens(ctx)
	boxes, err2 := s.opt.Service.Sandboxes(server, hutch.Filter{Brief: true})
	snaps, err3 := s.opt.Service.Snapshots(server)
	images, err4 := s.opt.Images.Images(server)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	ids := s.opt.More()
	for _, v := range tokens {
		ids = append(ids, v.ID)
	}
	for _, v := range boxes {
		ids = append(ids, v.Owner)
	}
	for _, v := range snaps {
		ids = append(ids, v.Owner)
	}
	for _, v := range images {
		ids = append(ids, v.Owner)
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id == "" }), nil
}

// ownerData are the data of one owner.
type ownerData struct {
	boxes   []hutch.Sandbox
	snaps   []hutch.Snapshot
	images  []hutch.Image
	volumes []hutch.Volume
	backups []hutch.Backup
	secrets []hutch.Secret
}

// of lists an owner's data, without data that others share with the owner.
func (s *Service) of(ctx context.Context, owner string) (b ownerData, err error) {
	ctx = caller.WithOwner(ctx, caller.Owner{ID: owner})
	var errs [6]error
	b.boxes, errs[0] = s.opt.Service.Sandboxes(ctx, hutch.Filter{Brief: true})
	b.snaps, errs[1] = s.opt.Service.Snapshots(ctx)
	b.images, errs[2] = s.opt.Images.Images(ctx)
	b.volumes, errs[3] = s.opt.Volumes.Volumes(ctx)
	b.backups, errs[4] = s.opt.Backups.Backups(ctx)
	b.secrets, errs[5] = s.opt.Secrets.Secrets(ctx)
	b.boxes = slices.DeleteFunc(b.boxes, func(v hutch.Sandbox) bool { return v.Owner != owner })
	b.snaps = slices.DeleteFunc(b.snaps, func(v hutch.Snapshot) bool { return v.Owner != owner })
	b.images = slices.DeleteFunc(b.images, func(v hutch.Image) bool { return v.Owner != owner })
	b.secrets = slices.DeleteFunc(b.secrets, func(v hutch.Secret) bool { return v.Shared })
	return b, errors.Join(errs[:]...)
}

// owned counts an owner's data.
func (s *Service) owned(ctx context.Context, owner string) (hutch.Owned, error) {
	b, err := s.of(ctx, owner)
	o := hutch.Owned{
		Owner: owner, Sandboxes: len(b.boxes), Snapshots: len(b.snaps), Images: len(b.images),
		Volumes: len(b.volumes), Backups: len(b.backups), Secrets: len(b.secrets),
	}
	for _, v := range b.snaps {
		o.Size += v.Size
	}
	for _, v := range b.images {
		o.Size += v.Size
	}
	for _, v := range b.volumes {
		o.Size += v.Size
	}
	for _, v := range b.backups {
		o.Size += v.Size
	}
	token, known := s.token(ctx, owner)
	o.Name, o.Live = token.Name, known && token.Live(time.Now())
	return o, err
}

func (s *Service) token(ctx context.Context, owner string) (hutch.Token, bool) {
	list, err := s.opt.Tokens.Tokens(ctx)
	i := slices.IndexFunc(list, func(t hutch.Token) bool { return t.ID == owner })
	if err != nil || i < 0 {
		return hutch.Token{}, false
	}
	return list[i], true
}

// DeleteOwner implements hutch.Owners.
func (s *Service) DeleteOwner(ctx context.Context, owner string) (hutch.Owned, error) {
	if strings.TrimSpace(owner) == "" || len(owner) > hutch.MaxPath {
		return hutch.Owned{}, hutch.Errorf(hutch.Invalid, "%.80q is not an owner: list the owners", owner).Naming(hutch.AboutField, "owner")
	}
	if t, known := s.token(ctx, owner); known && t.Live(time.Now()) {
		return hutch.Owned{}, hutch.Errorf(hutch.Conflict, "the token %q of this owner is valid: revoke it first", t.Name)
	}
	as := caller.WithOwner(ctx, caller.Owner{ID: owner})
	ended := s.endBuilds(as) // first: what they have made until then is listed, and deleted too
	b, err := s.of(ctx, owner)
	if err == nil {
		err = errors.Join(ended, s.deleteAll(as, b))
	}
	if err == nil && s.opt.Unreached != nil {
		err = s.opt.Unreached()
	}
	if err == nil && s.opt.Forget != nil {
		err = s.opt.Forget(owner)
	}
	if s.opt.Keys != nil {
		err = cmp.Or(err, s.opt.Keys(ctx, owner))
	}
	left, failed := s.owned(ctx, owner)
	return left, cmp.Or(err, failed)
}

// failures are errors, except those about data that are gone already.
type failures []error

func (f *failures) try(err error) {
	if err != nil && hutch.KindOf(err) != hutch.NotFound {
		*f = append(*f, err)
	}
}

// endBuilds ends an owner's builds, which make sandboxes and images, and removes their records.
func (s *Service) endBuilds(ctx context.Context) error {
	var errs failures
	builds, err := s.opt.Images.Builds(ctx)
	errs.try(err)
	for _, v := range builds {
		if v.Status == hutch.BuildRunning {
			errs.try(s.opt.Images.DeleteBuild(ctx, v.ID)) // ends it
		}
		errs.try(s.opt.Images.DeleteBuild(ctx, v.ID))
	}
	return errors.Join(errs...)
}

// deleteAll deletes an owner's data. Sandboxes are first: they hold volumes and images.
func (s *Service) deleteAll(ctx context.Context, b ownerData) error {
	var errs failures
	for _, v := range b.boxes {
		_, err := s.opt.Service.Destroy(ctx, v.ID, true)
		errs.try(err)
	}
	for _, v := range b.snaps {
		errs.try(s.opt.Service.DeleteSnapshot(ctx, v.ID))
	}
	for _, v := range b.volumes {
		errs.try(s.opt.Volumes.DeleteVolume(ctx, v.Name, true))
	}
	for _, v := range b.images {
		errs.try(s.opt.Images.DeleteImage(ctx, v.ID))
	}
	for _, v := range b.backups {
		errs.try(s.opt.Backups.DeleteBackup(ctx, v.ID))
	}
	for _, v := range b.secrets {
		errs.try(s.opt.Secrets.DeleteSecret(ctx, v.Name))
	}
	return errors.Join(errs...)
}

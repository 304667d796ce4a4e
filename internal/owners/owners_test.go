package owners

import (
	"context"
	"errors"
	"slices"
	"testing"

	"hutch"
)

// The verbs of a server with one owner, which has one sandbox.
type (
	boxVerbs    = hutch.Service
	tokenVerbs  = hutch.Tokens
	volumeVerbs = hutch.Volumes
	imageVerbs  = hutch.Images
	backupVerbs = hutch.Backups
	secretVerbs = hutch.Secrets

	boxes struct {
		boxVerbs
		destroy error
	}
	tokens  struct{ tokenVerbs }
	volumes struct{ volumeVerbs }
	images  struct {
		imageVerbs
		builds  []hutch.Build
		deleted *[]string
	}
	backups struct{ backupVerbs }
	secrets struct{ secretVerbs }
)

func (boxes) Sandboxes(context.Context, hutch.Filter) ([]hutch.Sandbox, error) {
	return []hutch.Sandbox{{ID: "box", Owner: "ada"}}, nil
}

func (b boxes) Destroy(context.Context, string, bool) (hutch.Destruction, error) {
	return hutch.Destruction{}, b.destroy
}
func (boxes) Snapshots(context.Context) ([]hutch.Snapshot, error) { return nil, nil }
func (tokens) Tokens(context.Context) ([]hutch.Token, error)      { return nil, nil }
func (volumes) Volumes(context.Context) ([]hutch.Volume, error)   { return nil, nil }
func (i images) Builds(context.Context) ([]hutch.Build, error)    { return i.builds, nil }
func (i images) Images(context.Context) ([]hutch.Image, error) {
	if i.deleted != nil {
		*i.deleted = append(*i.deleted, "then images are listed")
	}
	return nil, nil
}
func (i images) DeleteBuild(_ context.Context, id string) error {
	*i.deleted = append(*i.deleted, id)
	return nil
}
func (backups) Backups(context.Context) ([]hutch.Backup, error) { return nil, nil }
func (secrets) Secrets(context.Context) ([]hutch.Secret, error) { return nil, nil }

// It is not an error if the data to delete are gone already. Every other failure is an error, even if its cause is of the
// kind NotFound.
func TestDeleteOwnerErrors(t *testing.T) {
	gone := hutch.Errorf(hutch.NotFound, "there is no such sandbox")
	for _, c := range []struct{ destroy, want error }{
		{gone, nil},
		{hutch.Errorf(hutch.Unavailable, "the runtime does not answer").Because(gone), hutch.Unavailable},
	} {
		s := New(Options{Service: boxes{destroy: c.destroy}, Tokens: tokens{}, Volumes: volumes{}, Images: images{}, Backups: backups{}, Secrets: secrets{}})
		if _, err := s.DeleteOwner(t.Context(), "ada"); !errors.Is(err, c.want) {
			t.Errorf("%v becomes %v", c.destroy, err)
		}
	}
}

// The builds of an owner are ended, and their records removed, before the sandboxes and images that they made are listed.
func TestDeleteOwnerBuilds(t *testing.T) {
	var deleted []string
	list := images{builds: []hutch.Build{{ID: "b-ended", Status: hutch.BuildBuilt}, {ID: "b-runs", Status: hutch.BuildRunning}}, deleted: &deleted}
	s := New(Options{Service: boxes{}, Tokens: tokens{}, Volumes: volumes{}, Images: list, Backups: backups{}, Secrets: secrets{}})
	if _, err := s.DeleteOwner(t.Context(), "ada"); err != nil || !slices.Equal(deleted[:min(len(deleted), 4)], []string{"b-ended", "b-runs", "b-runs", "then images are listed"}) {
		t.Errorf("%v %v", deleted, err)
	}
}

package wrap

import (
	"context"
	"io"

	"hutch"
	"hutch/internal/verb"
)

// VolumeService is a hutch.Volumes that calls Next with Hook around each call.
type VolumeService struct {
	Next hutch.Volumes
	Hook Hook
}

// CreateVolume implements hutch.Volumes.
func (s *VolumeService) CreateVolume(ctx context.Context, req hutch.VolumeRequest) (hutch.Volume, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CreateVolume", Target: req.Name, Request: req}, func(ctx context.Context) (hutch.Volume, error) {
		return next(ctx, s).CreateVolume(ctx, req)
	})
}

// Volumes implements hutch.Volumes.
func (s *VolumeService) Volumes(ctx context.Context) ([]hutch.Volume, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Volumes"}, func(ctx context.Context) ([]hutch.Volume, error) {
		return next(ctx, s).Volumes(ctx)
	})
}

// Volume implements hutch.Volumes.
func (s *VolumeService) Volume(ctx context.Context, name string) (hutch.Volume, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Volume", Target: name}, func(ctx context.Context) (hutch.Volume, error) {
		return next(ctx, s).Volume(ctx, name)
	})
}

// DeleteVolume implements hutch.Volumes.
func (s *VolumeService) DeleteVolume(ctx context.Context, name string, force bool) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteVolume", Target: name}, func(ctx context.Context) error {
		return next(ctx, s).DeleteVolume(ctx, name, force)
	})
}

// ReadVolume implements hutch.Volumes.
func (s *VolumeService) ReadVolume(ctx context.Context, name, path string, w io.Writer) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "ReadVolume", Target: name + ":" + path}, func(ctx context.Context) error {
		return next(ctx, s).ReadVolume(ctx, name, path, w)
	})
}

// WriteVolume implements hutch.Volumes.
func (s *VolumeService) WriteVolume(ctx context.Context, name, path string, r io.Reader) (hutch.Volume, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "WriteVolume", Target: name + ":" + path}, func(ctx context.Context) (hutch.Volume, error) {
		return next(ctx, s).WriteVolume(ctx, name, path, r)
	})
}

// SaveVolumes implements hutch.Volumes.
func (s *VolumeService) SaveVolumes(ctx context.Context, sandbox string) ([]hutch.Volume, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SaveVolumes", Sandbox: sandbox}, func(ctx context.Context) ([]hutch.Volume, error) {
		return next(ctx, s).SaveVolumes(ctx, sandbox)
	})
}

// SyncVolume implements hutch.Volumes.
func (s *VolumeService) SyncVolume(ctx context.Context, name string) (hutch.Volume, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "SyncVolume", Target: name}, func(ctx context.Context) (hutch.Volume, error) {
		return next(ctx, s).SyncVolume(ctx, name)
	})
}

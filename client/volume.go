package client

import (
	"context"
	"io"
	"net/url"

	"hutch"
)

var _ hutch.Volumes = (*Client)(nil)

// CreateVolume implements hutch.Volumes.
func (c *Client) CreateVolume(ctx context.Context, req hutch.VolumeRequest) (hutch.Volume, error) {
	return call[hutch.Volume](ctx, c, at("CreateVolume").check(req.Check()), req)
}

// Volumes implements hutch.Volumes.
func (c *Client) Volumes(ctx context.Context) ([]hutch.Volume, error) {
	return call[[]hutch.Volume](ctx, c, at("Volumes"), nil)
}

// Volume implements hutch.Volumes.
func (c *Client) Volume(ctx context.Context, name string) (hutch.Volume, error) {
	return call[hutch.Volume](ctx, c, volumeAt("Volume", name), nil)
}

// DeleteVolume implements hutch.Volumes.
func (c *Client) DeleteVolume(ctx context.Context, name string, force bool) error {
	to := volumeAt("DeleteVolume", name)
	if force {
		to = to.with(url.Values{"force": {"true"}})
	}
	_, err := call[struct{}](ctx, c, to, nil)
	return err
}

// ReadVolume implements hutch.Volumes.
func (c *Client) ReadVolume(ctx context.Context, name, path string, w io.Writer) error {
	return c.receive(ctx, volumeAt("ReadVolume", name).check(hutch.CheckVolumePath(path)).with(url.Values{"path": {path}}), w)
}

// WriteVolume implements hutch.Volumes.
func (c *Client) WriteVolume(ctx context.Context, name, path string, r io.Reader) (v hutch.Volume, err error) {
	to := volumeAt("WriteVolume", name).check(hutch.CheckVolumePath(path)).with(url.Values{"path": {path}})
	return v, c.send(ctx, to, r, &v)
}

// SaveVolumes implements hutch.Volumes.
func (c *Client) SaveVolumes(ctx context.Context, sandbox string) ([]hutch.Volume, error) {
	return call[[]hutch.Volume](ctx, c, at("SaveVolumes", sandbox), nil)
}

// SyncVolume implements hutch.Volumes.
func (c *Client) SyncVolume(ctx context.Context, name string) (hutch.Volume, error) {
	return call[hutch.Volume](ctx, c, volumeAt("SyncVolume", name), nil)
}

// SaveVolumes saves the volumes that the sandbox can write to.
func (s *Sandbox) SaveVolumes(ctx context.Context) ([]hutch.Volume, error) {
	return s.client.SaveVolumes(ctx, s.ID)
}

// volumeAt returns the endpoint of a verb on one volume.
func volumeAt(verb, name string) endpoint { return at(verb, name).check(hutch.CheckVolume(name)) }

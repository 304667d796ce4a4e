package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/driver"
)

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, id string, h driver.Handle) (driver.Instance, error) {
	if err := hutch.CheckID(id); err != nil {
		return nil, err
	}
	api, err := d.engine()
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(h, &r); err != nil {
		return nil, fmt.Errorf("read the handle of sandbox %s: %w", id, err)
	}
	i := d.newInstance(api, id, r)
	found, err := api.ContainerInspect(ctx, r.Container, client.ContainerInspectOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("find the container of sandbox %s: %w", id, err)
	}
	state := found.Container.State
	if err != nil || state == nil || !state.Running {
		close(i.done)
		if err := i.Destroy(ctx); err != nil {
			return nil, err
		}
		return nil, hutch.Errorf(hutch.NotFound, "the sandbox %q no longer runs", id)
	}
	go i.watch()
	return i, i.Thaw(ctx)
}

// Sweep implements driver.Driver. It also removes images of skeletons that no longer exist; they do not count in the
// result.
func (d *Driver) Sweep(ctx context.Context, keep func(id string) bool) (int, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the driver never made a container
	} else if err != nil {
		return 0, err
	}
	left := map[string]bool{}
	for _, e := range entries {
		left[e.Name()] = true
	}
	api, err := d.engine()
	if err != nil {
		return 0, err
	}
	all, err := api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: d.ours()})
	if err != nil {
		return 0, fmt.Errorf("list the containers of the Docker engine: %w", err)
	}
	for _, c := range all.Items {
		// Labels can be copied, and an image can set them for its containers; but only this driver gives this name.
		if id := c.Labels[sandboxLabel]; hutch.CheckID(id) == nil && slices.Contains(c.Names, "/"+d.container(id)) {
			left[id] = true
		}
	}
	n := 0
	var errs error
	for id := range left {
		if keep(id) {
			continue
		}
		if err := d.newInstance(api, id, record{}).Destroy(ctx); err != nil {
			errs = errors.Join(errs, fmt.Errorf("sweep sandbox %s: %w", id, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs, sweepImages(ctx, api, true))
}

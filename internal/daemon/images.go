package daemon

import (
	"context"
	"io"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/datadir"
	"hutch/internal/host"
	"hutch/internal/images"
	"hutch/internal/oci"
)

// openImages opens the store of images beside the image of the host.
func (d *Daemon) openImages(context.Context) error {
	c := d.cfg.Images
	dir, err := d.cfg.Data.Make(datadir.OCI)
	if err != nil {
		return err
	}
	lock, free, err := datadir.LockPatiently(dir)
	switch {
	case err != nil:
		return err
	case !free:
		return hutch.Errorf(hutch.Conflict, "a command has the images of the data folder %s open: wait until it ends, then start the server again", d.cfg.Data)
	}
	d.onClose(lock.Close)
	store, err := oci.Open(dir, oci.Options{Limits: c.Limits, Registries: c.Registries, Proxy: c.Proxy, Allowed: c.Allowed, Log: d.log})
	if err != nil {
		return err
	}
	d.onClose(store.Close)
	root := d.cfg.Sandboxes.Image
	root.Authority, root.Log = d.authority.Certificate(), d.log
	d.images = images.New(images.Options{
		Store: store, Host: host.Images(d.cfg.Data.Images(), root), Authority: root.Authority,
		Login: d.registryLogin, Began: d.imagesBegan,
		Sandbox: func(ctx context.Context, id string) (hutch.Sandbox, error) { return d.engine.Sandbox(ctx, id) },
		Written: func(ctx context.Context, id string, w io.Writer) error { return d.engine.PackWritten(ctx, id, w) },
	})
	return nil
}

const (
	// sweepImages is how often images are looked through.
	sweepImages = time.Hour
	// rootAge is how long the root file system of an image stays that nothing uses.
	// It can be made again from the layers.
	rootAge = 7 * 24 * time.Hour
)

// keepImagesSwept removes images that nothing has used for long, and their root file
// systems before.
func (d *Daemon) keepImagesSwept(context.Context) error {
	d.runs(func(ctx context.Context) {
		for {
			gone, err := d.images.Sweep(ctx, d.cfg.Images.Keep, rootAge)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				d.log.Warn("images that nothing uses could not be removed; the next try is in an hour", "err", err)
			case gone.Freed > 0 || len(gone.Images) > 0:
				d.log.Info("removed images that nothing uses, or their root file systems", "images", len(gone.Images), "freed", gone.Freed)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(sweepImages):
			}
		}
	})
	return nil
}

// registryLogin is what an owner signs in to a registry with: a secret of that name.
func (d *Daemon) registryLogin(owner, registry string) (hutch.RegistryLogin, bool) {
	text, err := d.vault.Value(owner, hutch.RegistrySecret(registry))
	if err != nil {
		return hutch.RegistryLogin{}, false
	}
	name, password, ok := strings.Cut(text, ":")
	return hutch.RegistryLogin{Username: name, Password: password}, ok
}

// imagesBegan lists the images that sandboxes and snapshots of all owners began with.
func (d *Daemon) imagesBegan(ctx context.Context) (names []string, err error) {
	ctx = caller.WithoutOwner(ctx)
	sandboxes, err := d.engine.Sandboxes(ctx, hutch.Filter{Brief: true})
	if err != nil {
		return nil, err
	}
	snapshots, err := d.engine.Snapshots(ctx)
	for _, sb := range sandboxes {
		names = append(names, sb.Image)
	}
	for _, s := range snapshots {
		names = append(names, s.Image)
	}
	return names, err
}

package daemon

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/build"
	"hutch/internal/caller"
	"hutch/internal/datadir"
	"hutch/internal/delay"
	"hutch/internal/driver"
	"hutch/internal/host"
	"hutch/internal/images"
	"hutch/internal/oci"
)

// openImages opens the store of images and the image of the host.
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
	d.builder = build.New(build.Options{Store: store, Sandboxes: builders{d}, Log: d.log,
		Resolve: func(ctx context.Context, name string, pull hutch.PullPolicy) (string, error) {
			return d.images.Digest(ctx, name, pull)
		}})
	d.images = images.New(images.Options{
		Store: store, Host: host.Images(d.cfg.Data.Images(), root), Authority: root.Authority,
		Login: d.registryLogin, Began: d.imagesBegan,
		Sandbox: func(ctx context.Context, id string) (hutch.Sandbox, error) { return d.engine.Sandbox(ctx, id) },
		Build:   d.builder.Build,
		Written: builders{d}.PackWritten, List: builders{d}.ListWritten,
		Snapshot: func(ctx context.Context, id string, read func(hutch.Snapshot, io.Reader) error) error {
			return d.engine.ReadSnapshot(ctx, id, read)
		},
	})
	return nil
}

// builders runs the sandboxes of builds on the engine. It looks up the engine at each call, because the engine starts
// after the images are opened.
type builders struct{ d *Daemon }

func (b builders) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	return b.d.engine.Create(ctx, req)
}

func (b builders) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	return b.d.engine.Sandboxes(ctx, f)
}

func (b builders) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	return b.d.engine.Destroy(ctx, id, force)
}

func (b builders) HasRoot(runtime string) bool {
	i := slices.IndexFunc(b.d.runtimes, func(r driver.Driver) bool { return r.Name() == runtime })
	if i < 0 {
		return false
	}
	can, _ := b.d.runtimes[i].Defaults().CanBeRoot()
	return can
}

func (b builders) RunProgram(ctx context.Context, id string, argv, env []string, dir string, out func(hutch.Output) error) (int, error) {
	return b.d.engine.RunProgram(ctx, id, argv, env, dir, out)
}

func (b builders) PackWritten(ctx context.Context, id string, w io.Writer) error {
	return b.d.engine.PackWritten(ctx, id, w)
}

func (b builders) UnpackWritten(ctx context.Context, id string, r io.Reader) error {
	return b.d.engine.UnpackWritten(ctx, id, r)
}

func (b builders) ListWritten(ctx context.Context, id string, w io.Writer) error {
	return b.d.engine.ListWritten(ctx, id, w)
}

// sweepBuilds destroys the sandboxes that builds of an earlier server left behind.
func (d *Daemon) sweepBuilds(ctx context.Context) error {
	if err := d.builder.Sweep(ctx); err != nil {
		d.log.Warn("sandboxes of broken builds stay until their time is over", "err", err)
	}
	return nil
}

const (
	// sweepImages is how often unused images are removed.
	sweepImages = time.Hour
	// rootAge is how long the root file system of an unused image is kept. The root file system can be made again from
	// the layers.
	rootAge = 7 * 24 * time.Hour
)

// keepImagesSwept removes images that were not used for a long time, and their root file systems earlier.
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
			if delay.Wait(ctx, sweepImages) != nil {
				return
			}
		}
	})
	return nil
}

// registryLogin returns an owner's login for a registry, from the secret that is named after the registry.
func (d *Daemon) registryLogin(owner, registry string) (hutch.RegistryLogin, bool) {
	text, err := d.vault.Value(owner, hutch.RegistrySecret(registry))
	if err != nil {
		return hutch.RegistryLogin{}, false
	}
	name, password, ok := strings.Cut(text, ":")
	return hutch.RegistryLogin{Username: name, Password: password}, ok
}

// imagesBegan lists the images from which the sandboxes and snapshots of all owners were made.
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

package main

import (
	"context"
	"errors"
	"log/slog"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/host"
	"hutch/internal/image"
	"hutch/internal/images"
	"hutch/internal/oci"
)

// ownImages opens the images of the data folder for an engine of this process. It returns them with a function that
// closes them. Only one process can have them open at a time.
func (h *home) ownImages(programs image.HostOptions, log *slog.Logger) (*images.Images, func() error, error) {
	dir, err := h.data().Make(datadir.OCI)
	if err != nil {
		return nil, nil, err
	}
	lock, free, err := datadir.LockPatiently(dir)
	switch {
	case err != nil:
		return nil, nil, err
	case !free:
		return nil, nil, hutch.Errorf(hutch.Conflict, "another command or server has the images of the data folder %s open: wait until it ends, or start a server with `hutch serve`, which many commands can use", h.dir)
	}
	store, err := oci.Open(dir, oci.Options{Log: log})
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	programs.Log = log
	all := images.New(images.Options{Store: store, Host: host.Images(h.data().Images(), programs)})
	return all, func() error { return errors.Join(store.Close(), lock.Close()) }, nil
}

// begun is a new sandbox for one command, and the function that ends it.
type begun struct {
	hutch.Service
	images  hutch.Images // images for the sandbox's image
	image   string       // its name
	sandbox string
	end     func() error
}

// begin creates a sandbox for one command: in an engine of this process or, with an
// image, on the server if one runs, because the server has the images.
func (p *placement) begin(ctx context.Context, h *home, std streams, log *slog.Logger) (b begun, err error) {
	req := p.request("")
	req.KeepAlive = true
	if t, terr := h.target(); p.image != "" && p.image != image.HostName && terr == nil && !t.idle {
		svc, err := h.dial()
		if err != nil {
			return b, err
		}
		b = begun{Service: svc, images: svc, end: func() error { return nil }}
		if err := pullFirst(ctx, svc, &req, std); err != nil {
			return b, err
		}
	} else {
		m, err := h.embed(ctx, p.runtime, p.image, log)
		if err != nil {
			return b, err
		}
		b = begun{Service: m, images: m.images, end: m.Close}
		if path, isFile := hutch.ImageFile(p.image); isFile {
			if err := loadFirst(ctx, m.images, &req, path); err != nil {
				return b, errors.Join(err, b.end())
			}
		}
	}
	sb, err := b.Create(ctx, req)
	if err != nil {
		return b, errors.Join(err, b.end())
	}
	b.sandbox, b.image = sb.ID, req.Image
	if closes := b.end; p.image != "" {
		b.end = func() error {
			_, err := b.Destroy(context.WithoutCancel(ctx), sb.ID, true)
			return errors.Join(err, closes())
		}
	}
	return b, nil
}

// entrypoint returns the command that the image names: its ENTRYPOINT, and CMD after it.
func (b begun) entrypoint(ctx context.Context) (string, error) {
	img, err := b.images.Image(ctx, b.image)
	if err != nil {
		return "", err
	}
	program := img.Config.Program()
	if program == "" {
		return "", hutch.Errorf(hutch.Invalid, "the image %s does not say which program it runs: give a command", b.image).Naming(hutch.AboutField, "command")
	}
	return program, nil
}

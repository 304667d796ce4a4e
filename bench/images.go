package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/testimage"
)

const benchImage = "localhost/bench:1"

// images measures sandboxes with an image and with the host's programs, in turns. It also compares making an image
// ready with unpacking its layer with tar.
func (l *lab) images(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× baseline")
	load, untar, err := l.loadImage(ctx)
	if err != nil {
		return t, err
	}
	for _, f := range l.runtimes {
		var create, exec [2]series // [0] on the host's programs, [1] on the image
		for range l.rounds {
			if err := l.beginInTurns(ctx, f.runtime, &create, &exec); err != nil {
				return t, err
			}
		}
		t.quantiles(f.runtime+": create, host", create[0], create[0])
		t.quantiles(f.runtime+": create, image", create[1], create[0])
		t.quantiles(f.runtime+": python3 -c 0, host", exec[0], exec[0])
		t.quantiles(f.runtime+": python3 -c 0, image", exec[1], exec[0])
	}
	t.quantiles("tar -xzf of the layer", untar, untar)
	t.quantiles("load the image and make its root file system", load, untar)
	t.note("The image is a Debian with Python, as one layer; no sandbox is kept ready.")
	return t, nil
}

// beginInTurns measures one round with both images.
func (l *lab) beginInTurns(ctx context.Context, runtime string, create, exec *[2]series) error {
	var creates, execs [2][]time.Duration
	for range l.creates {
		for i, image := range []string{"host", benchImage} {
			c, e, err := l.begin(ctx, hutch.CreateRequest{Runtime: runtime, Image: image})
			if err != nil {
				return err
			}
			creates[i], execs[i] = append(creates[i], c), append(execs[i], e)
		}
	}
	for i := range creates {
		create[i], exec[i] = append(create[i], creates[i]), append(exec[i], execs[i])
	}
	return nil
}

// begin measures a create, and the first Python in the sandbox.
func (l *lab) begin(ctx context.Context, req hutch.CreateRequest) (create, python time.Duration, err error) {
	svc := l.server.rest
	began := time.Now()
	sb, err := svc.Create(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	create = time.Since(began)
	began = time.Now()
	_, err = svc.Exec(ctx, sb.ID, hutch.ExecRequest{Command: "python3 -c 0"}, nil)
	python = time.Since(began)
	_, derr := svc.Destroy(ctx, sb.ID, true)
	return create, python, errors.Join(err, derr)
}

// loadImage loads the image into the server, once for each round, and unpacks its layer with tar.
func (l *lab) loadImage(ctx context.Context) (load, untar series, err error) {
	layer, archive := filepath.Join(l.dir, "layer.tar.gz"), filepath.Join(l.dir, "image.tar")
	if err := makeImage(layer, archive); err != nil {
		return nil, nil, err
	}
	for range l.rounds {
		began := time.Now()
		dir := filepath.Join(l.dir, "untarred")
		out, err := exec.CommandContext(ctx, "sh", "-c", "mkdir "+dir+" && tar -C "+dir+" -xzf "+layer).CombinedOutput()
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %s", err, out)
		}
		untar = append(untar, []time.Duration{time.Since(began)})
		if err := os.RemoveAll(dir); err != nil {
			return nil, nil, err
		}
		took, err := l.loadOnce(ctx, archive)
		if err != nil {
			return nil, nil, err
		}
		load = append(load, []time.Duration{took})
	}
	return load, untar, nil
}

// loadOnce loads the image into a server that does not have it, and creates a sandbox, which makes the image's root.
func (l *lab) loadOnce(ctx context.Context, archive string) (time.Duration, error) {
	svc := l.server.rest
	if err := svc.DeleteImage(ctx, benchImage); err != nil && !errors.Is(err, hutch.NotFound) {
		return 0, err
	}
	f, err := os.Open(archive)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	began := time.Now()
	if _, err := svc.LoadImages(ctx, benchImage, f); err != nil {
		return 0, err
	}
	_, _, err = l.begin(ctx, hutch.CreateRequest{Runtime: l.runtimes[0].runtime, Image: benchImage})
	return time.Since(began), err
}

// makeImage writes a layer, and an archive with an image of this layer.
func makeImage(layerPath, archive string) error {
	content := layerPath + ".tar"
	f, err := os.Create(content)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := errors.Join(debian.Write(w), w.Close()); err != nil {
		return err
	}
	if out, err := exec.Command("sh", "-c", "gzip -1 <"+content+" >"+layerPath).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	layer, err := tarball.LayerFromFile(layerPath)
	if err != nil {
		return err
	}
	img, err := testimage.Image(v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}, layer)
	if err != nil {
		return err
	}
	tag, err := name.NewTag("localhost/bench-source:1")
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, img)
}

// Package docker copies labelled images from a Docker engine into the store of images, so that sandboxes can use images
// built with Docker on this machine. Nothing runs in Docker.
package docker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/delay"
)

// every is the interval at which the engine is asked for its images, by one request to a socket of this machine.
const every = 10 * time.Second

// Store is the part of the images that a copy needs.
type Store interface {
	Image(ctx context.Context, name string) (hutch.Image, error)
	LoadImages(ctx context.Context, name string, r io.Reader) ([]hutch.Image, error)
}

// Engine is a Docker engine. Its zero value is not usable: call [Open].
type Engine struct {
	api    *client.Client
	store  Store
	log    *slog.Logger
	failed string             // the last failure, which is logged once
	bad    map[string]failure // by Docker id: images that could not be copied
}

// failure is why an image could not be copied. The wait until the next try grows with each failure, because an archive
// can be large.
type failure struct {
	err  error
	wait time.Duration
	next time.Time
}

// longest is the longest wait before an image is tried again.
const longest = time.Hour

// Open returns the engine of the environment: DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH.
// Images go to store, where all owners can use them.
func Open(store Store, log *slog.Logger) (*Engine, error) {
	api, err := client.New(client.FromEnv)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the Docker engine cannot be used: %v. Correct DOCKER_HOST, or remove it from the environment", err)
	}
	return &Engine{api: api, store: store, log: log, bad: map[string]failure{}}, nil
}

// Close ends the connections.
func (e *Engine) Close() error { return e.api.Close() }

// Follow copies the images with a label, such as sandbox.runner=true, now and whenever there is a new one, until ctx is
// done. If an engine does not answer, it is asked again later.
func (e *Engine) Follow(ctx context.Context, label string) {
	for {
		e.report(ctx, e.Copy(ctx, label))
		if delay.Wait(ctx, every) != nil {
			return
		}
	}
}

// report logs a failure, but not the same one twice.
func (e *Engine) report(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != e.failed && ctx.Err() == nil {
		e.log.Warn("images of the Docker engine could not be copied; the next try is in a few seconds", "err", err)
	}
	e.failed = text
}

// Copy copies the images that have a label and are not in the store yet. For an image that is not tried again yet, it
// returns the error of the last try.
func (e *Engine) Copy(ctx context.Context, label string) error {
	list, err := e.api.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", label)})
	if err != nil {
		return err
	}
	ctx = caller.WithOwner(ctx, caller.Owner{})
	var failed []error
	for _, img := range list.Items {
		failed = append(failed, e.try(ctx, img.ID, img.RepoTags))
	}
	return errors.Join(failed...)
}

// try copies one image, unless it failed a short time ago.
func (e *Engine) try(ctx context.Context, id string, tags []string) error {
	was := e.bad[id]
	if time.Now().Before(was.next) {
		return was.err
	}
	err := e.copy(ctx, id, tags)
	delete(e.bad, id)
	if err != nil {
		wait := min(max(2*was.wait, every), longest)
		e.bad[id] = failure{err, wait, time.Now().Add(wait)}
	}
	return err
}

// copy copies one image, unless it is in the store. In the store, the image has its own names and a name with its Docker
// id.
func (e *Engine) copy(ctx context.Context, id string, tags []string) error {
	name := "docker.engine.internal/image:" + strings.TrimPrefix(id, "sha256:")
	if _, err := e.store.Image(ctx, name); hutch.KindOf(err) != hutch.NotFound {
		return err
	}
	which := []string{id}
	if len(tags) > 0 {
		which = tags
	}
	archive, err := e.api.ImageSave(ctx, which)
	if err != nil {
		return err
	}
	defer archive.Close()
	if _, err := e.store.LoadImages(ctx, name, archive); err != nil {
		return err
	}
	e.log.Info("copied an image of the Docker engine", "names", tags, "id", id)
	return nil
}

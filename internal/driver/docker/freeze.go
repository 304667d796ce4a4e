package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/client"

	"hutch/internal/driver"
)

var _ driver.Freezer = (*instance)(nil)

// Freeze implements driver.Freezer.
func (i *instance) Freeze(ctx context.Context) error {
	if paused, err := i.paused(ctx); paused || err != nil {
		return err
	}
	if _, err := i.api.ContainerPause(ctx, i.record.Container, client.ContainerPauseOptions{}); err != nil {
		return fmt.Errorf("pause a container: %w", err)
	}
	return nil
}

// Thaw implements driver.Freezer.
func (i *instance) Thaw(ctx context.Context) error {
	if paused, err := i.paused(ctx); !paused || err != nil {
		return err
	}
	if _, err := i.api.ContainerUnpause(ctx, i.record.Container, client.ContainerUnpauseOptions{}); err != nil {
		return fmt.Errorf("resume a container: %w", err)
	}
	return nil
}

func (i *instance) paused(ctx context.Context) (bool, error) {
	found, err := i.api.ContainerInspect(ctx, i.record.Container, client.ContainerInspectOptions{})
	if err != nil {
		return false, fmt.Errorf("look at a container: %w", err)
	}
	return found.Container.State != nil && found.Container.State.Paused, nil
}

package native

import (
	"context"

	"hutch"
	"hutch/internal/driver"
)

var _ driver.Freezer = (*instance)(nil)

// Freeze implements driver.Freezer.
func (i *instance) Freeze(ctx context.Context) error {
	if i.group == nil {
		return hutch.Errorf(hutch.Unsupported, "this server has no control groups, and without them a sandbox cannot be paused: `hutch doctor` says how to fix that")
	}
	return i.group.Freeze(ctx)
}

// Thaw implements driver.Freezer.
func (i *instance) Thaw(context.Context) error {
	if i.group == nil {
		return nil
	}
	return i.group.Thaw()
}

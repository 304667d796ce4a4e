package engine_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/image"
)

// A snapshot is not downloaded if its image is missing here and cannot be pulled, because the image was built on
// another machine.
func TestSnapshotOfAnImageOfAnotherMachine(t *testing.T) {
	missing := hutch.Errorf(hutch.NotFound, "there is no such image")
	b := start(t, func(o *engine.Options) {
		o.Image = func(_ context.Context, name string) (image.Root, error) {
			if name == "built:1" {
				return image.Root{}, missing
			}
			return image.Root{}, nil
		}
		o.Resolve = func(_ context.Context, name string, _ hutch.PullPolicy) (string, error) {
			if name == "built:1" {
				return "", missing
			}
			return name, nil
		}
	})
	v := hutch.Snapshot{ID: "snap-1", Image: "built:1", Runtime: b.driver.Name()}
	read := func(func(io.Reader) error) error { t.Error("it was downloaded"); return nil }
	err := b.ReceiveSnapshot(t.Context(), v, read, func(context.Context) error { t.Error("it was recorded"); return nil })
	if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "pull or build it here") {
		t.Errorf("without its image: %v", err)
	}
}

package host

import (
	"context"
	"sync"
	"time"

	"hutch"
	"hutch/internal/image"
)

// imageFresh is how long a host image is used before the machine is examined again: its programs can change while the
// daemon runs.
const imageFresh = time.Minute

// Images returns the function by which an engine finds the root file system of an
// image by name. The root file systems are kept below dir.
func Images(dir string, opt image.HostOptions) func(context.Context, string) (image.Root, error) {
	var (
		mu   sync.Mutex
		root image.Root
		made time.Time
	)
	return func(ctx context.Context, name string) (image.Root, error) {
		if name != image.HostName {
			return image.Root{}, hutch.Errorf(hutch.Invalid, "there is no image %q: this server has \"host\"", name)
		}
		mu.Lock()
		defer mu.Unlock()
		if time.Since(made) < imageFresh {
			return root, nil
		}
		r, err := image.Host(context.WithoutCancel(ctx), dir, opt) // the next caller needs it, too
		if err != nil {
			return image.Root{}, err
		}
		root, made = r, time.Now()
		return root, nil
	}
}

// Package fakeengine starts the real engine on the fake driver, for tests of code that uses an engine. Nothing is
// isolated: commands are processes of this machine.
package fakeengine

import (
	"context"
	"testing"

	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
	"hutch/internal/image"
	"hutch/internal/store"
)

// Start starts an engine that ends with the test.
func Start(t testing.TB) *engine.Engine {
	t.Helper()
	records, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	instances := fake.New(t.TempDir())
	e := engine.New(engine.Options{
		Dir: t.TempDir(), Drivers: []driver.Driver{instances}, Store: records,
		Image: func(context.Context, string) (image.Root, error) { return image.Root{}, nil },
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n, err := instances.Sweep(context.Background(), func(string) bool { return false }); err != nil {
			t.Errorf("sweep: %d, %v", n, err)
		}
	})
	return e
}

package servicetest_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
	"hutch/internal/rest"
	"hutch/internal/servicetest"
)

// newEngine returns an engine on the fake driver.
func newEngine(t testing.TB) hutch.Service {
	t.Helper()
	d := fake.New(t.TempDir())
	e := engine.New(engine.Options{
		Dir: t.TempDir(), Drivers: []driver.Driver{d}, Ephemeral: true, Sealer: hutchtest.Sealer(t),
		Image: func(context.Context, string) (image.Root, error) { return image.Root{}, nil },
		Gateway: func(x engine.Exit) (engine.Gateway, error) {
			return egress.New(x.Network, egress.Options{Sandbox: x.Sandbox})
		},
		PreviewURL: func(label string) string { return "http://" + label + ".localhost" },
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// overHTTP returns a client for svc behind a real server.
func overHTTP(t testing.TB, svc hutch.Service) hutch.Service {
	t.Helper()
	h := rest.NewHandler(svc, rest.Options{})
	srv := httptest.NewServer(h)
	c := client.New(srv.URL, "")
	t.Cleanup(func() {
		c.Close()
		h.Close()
		srv.Close()
	})
	return c
}

func TestEngine(t *testing.T) {
	servicetest.Run(t, func(t *testing.T) hutch.Service { return newEngine(t) }, servicetest.Options{NoIsolation: true})
}

func TestEngineOverHTTP(t *testing.T) {
	servicetest.Run(t, func(t *testing.T) hutch.Service { return overHTTP(t, newEngine(t)) }, servicetest.Options{NoIsolation: true})
}

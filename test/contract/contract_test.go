// Package contract holds the whole house to the contract of hutch.Service: the
// engine on each runtime, and the Go client that reaches it over HTTP, past the
// guard.
package contract

import (
	"net/http/httptest"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
	"hutch/internal/rest"
	"hutch/internal/servicetest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

func TestEngine(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			servicetest.Run(t, func(t *testing.T) hutch.Service { return hutchtest.Engine(t, runtime, nil) })
		})
	}
}

func TestOverHTTP(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			servicetest.Run(t, func(t *testing.T) hutch.Service { return overHTTP(t, hutchtest.Engine(t, runtime, nil)) })
		})
	}
}

// overHTTP is a client of svc behind a real server and the guard.
func overHTTP(t *testing.T, svc hutch.Service) hutch.Service {
	t.Helper()
	const token = "contract"
	h := rest.NewHandler(svc, rest.Options{})
	srv := httptest.NewServer(guard.New(h, guard.Options{Tokens: []string{token}}))
	c := client.New(srv.URL, token)
	t.Cleanup(func() {
		c.Close()
		h.Close()
		srv.Close()
	})
	return c
}

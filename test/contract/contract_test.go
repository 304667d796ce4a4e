// Package contract runs the contract of hutch.Service against the whole system: the engine on each runtime, and the
// Go client, over HTTP and through the guard.
package contract

import (
	"net/http/httptest"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/auth"
	"hutch/internal/engine"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/tokens"
	"hutch/internal/policy"
	"hutch/internal/quota"
	"hutch/internal/rest"
	"hutch/internal/secret"
	"hutch/internal/servicetest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// TestEngine runs on native only in a full test, because TestPolicy tests native with more layers, and TestImage
// without a pool.
func TestEngine(t *testing.T) {
	runtimes := hutchtest.Runtimes
	if !hutchtest.Full() {
		runtimes = []string{"gvisor"}
	}
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			servicetest.Run(t, func(t *testing.T) hutch.Service { return hutchtest.Engine(t, runtime, nil) })
		})
	}
}

// TestOverHTTP runs only in a full test, because TestPolicy has the same layers and more in front of the engine.
func TestOverHTTP(t *testing.T) {
	if !hutchtest.Full() {
		t.Skip("make test-full has it")
	}
	for _, runtime := range oneRuntime() {
		t.Run(runtime, func(t *testing.T) {
			servicetest.Run(t, func(t *testing.T) hutch.Service { return overHTTP(t, hutchtest.Engine(t, runtime, pooled)) })
		})
	}
}

// oneRuntime returns the runtime whose sandboxes start faster, or all runtimes in a full test. One is enough because
// the layers in front of an engine are the same for all runtimes.
func oneRuntime() []string {
	if hutchtest.Full() {
		return hutchtest.Runtimes
	}
	return []string{"native"}
}

// pooled keeps sandboxes ready, with an interpreter in each.
func pooled(o *engine.Options) {
	o.Pool = engine.Pool{Max: 4, Min: 2, Room: 1 << 30, Warm: []engine.Warm{{Language: "python", Modules: []string{"decimal"}}}}
}

func TestPolicy(t *testing.T) {
	for _, runtime := range oneRuntime() {
		t.Run(runtime, func(t *testing.T) {
			servicetest.Run(t, func(t *testing.T) hutch.Service { return governed(t, hutchtest.Engine(t, runtime, pooled)) }, servicetest.Options{Screens: true})
		})
	}
}

// governed returns a client with its own token, through all layers that stand in front of svc.
func governed(t *testing.T, svc hutch.Service) hutch.Service {
	t.Helper()
	tokens, err := auth.Open(t.Context(), auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	minted, err := tokens.CreateToken(t.Context(), hutch.TokenRequest{
		Name: "contract", Scopes: hutch.Scopes, Limits: hutch.TokenLimits{Requests: 1 << 20, Operations: 1 << 20, Sandboxes: 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	meter := func(window time.Duration) *quota.Meter {
		m, err := quota.Open(t.Context(), quota.Options{Window: window, What: "calls", Limit: "calls"})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	vault := secret.Given(map[string]string{"CONTRACT": "which no program here prints"})
	veil := secret.Redact(svc, vault.Redactor)
	p, err := policy.New(t.Context(), veil, policy.Options{Tokens: tokens, Secrets: vault, Operations: meter(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return dial(t, p, minted.Secret, guard.Options{Check: tokens.Check, Requests: meter(time.Minute), Unbounded: rest.Uploads})
}

// overHTTP returns a client of svc, through a real server and the guard.
func overHTTP(t *testing.T, svc hutch.Service) hutch.Service {
	t.Helper()
	const token = "contract"
	return dial(t, svc, token, guard.Options{Check: tokens.Only(token)})
}

func dial(t *testing.T, svc hutch.Service, token string, opt guard.Options) hutch.Service {
	t.Helper()
	h := rest.NewHandler(svc, rest.Options{})
	srv := httptest.NewServer(guard.New(h, opt))
	c := client.New(srv.URL, token)
	t.Cleanup(func() {
		c.Close()
		h.Close()
		srv.Close()
	})
	return c
}

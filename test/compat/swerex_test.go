package compat_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"hutch/internal/compat/swerex"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/tokens"
)

// swerexChecks is how many checks swerex_client.py has.
const swerexChecks = 26

// TestSWEReX drives a sandbox with RemoteRuntime of swe-rex.
func TestSWEReX(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "swerex")
	h := swerex.NewHandler(hutchtest.Engine(t, "native", nil), swerex.Options{})
	srv := httptest.NewServer(guard.New(h, guard.Options{Check: tokens.Only("a-token"), Unbounded: swerex.Uploads}))
	defer srv.Close()
	defer h.Close()
	out := runPython(t, python, "swerex_client.py", "SWEREX_URL="+srv.URL+"/swerex/agents-box", "SWEREX_KEY=a-token")
	if got := strings.Count("\n"+out, "\nok "); got != swerexChecks {
		t.Errorf("%d checks passed, want %d:\n%s", got, swerexChecks, out)
	}
}

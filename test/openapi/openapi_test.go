// Package openapi_test checks the OpenAPI document with a linter that we did not write. Package api tests what only
// we can know about it.
package openapi_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestLint(t *testing.T) {
	program := filepath.Join("node_modules", ".bin", "redocly")
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the linter is not installed: run npm ci in test/openapi")
		}
		t.Skip("the linter is not installed: run npm ci in test/openapi")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "lint", "--config=redocly.yaml", "../../api/openapi.yaml")
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("redocly lint: %v\n%s", err, out)
	}
}

package compat_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"hutch/internal/hutchtest"
)

// computeSDKChecks is how many checks computesdk_client.mjs has.
const computeSDKChecks = 16

// TestComputeSDK drives sandboxes with ComputeSDK's provider for E2B, which accepts only keys that begin with e2b_.
func TestComputeSDK(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join("node_modules", "@computesdk", "e2b")); err != nil {
		hutchtest.Skip(t, "ComputeSDK is not installed: run `test/compat/install`")
	}
	url, token := serveE2B(t)
	checkLines(t, runNode(t, "computesdk_client.mjs", e2bEnv(url, "e2b_"+hex.EncodeToString([]byte(token)))...), computeSDKChecks)
}

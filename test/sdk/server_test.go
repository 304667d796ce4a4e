// Package sdk_test holds the SDKs to their contract (sdk/contract), each installed as users do it, against a real
// server.
package sdk_test

import (
	"os"
	"testing"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
)

// serve starts a server without quotas. The server ends with the test, and leaves no sandbox. serve returns the
// environment for its clients: HUTCH_URL, then HUTCH_TOKEN.
func serve(t *testing.T, args ...string) []string {
	t.Helper()
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // the default
	return server.Program(t, hutchtest.Dir(t), os.Environ(), append([]string{
		"--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1"}, args...)...)
}

// Package sdk holds every client of Hutch to one contract: the cases in sdk/contract, against a real server. The Go
// client is run here; the SDKs in other languages have runners of their own, which the tests start.
package sdk

import (
	"flag"
	"path/filepath"
	"testing"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/messages"
	"hutch/internal/hutchtest/server"
)

// TestMain runs all files of cases at the same time, because they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "16")
	hutchtest.Main(m)
}

// serve starts a server that ends with the test. Its sandboxes are on gVisor where that works, because only gVisor
// keeps memory.
func serve(t *testing.T) *server.Process {
	t.Helper()
	p := server.Run(t, server.Options{Data: filepath.Join(hutchtest.Dir(t), "data"), Flags: messages.Flags(t)})
	t.Cleanup(func() { p.EndEmpty(t) })
	return p
}

//go:build compat

package compat_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSWEReXSuite runs SWE-ReX's own tests of execution and of its runtime from the checkout that SWEREX_SUITE names.
// Only the fixtures are ours: they name this server.
func TestSWEReXSuite(t *testing.T) {
	checkout := os.Getenv("SWEREX_SUITE")
	if checkout == "" {
		t.Skip("set SWEREX_SUITE to a checkout of github.com/SWE-agent/SWE-ReX")
	}
	python := pythonWith(t, "swerex, pytest_asyncio")
	dir := filepath.Join(t.TempDir(), "tests")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"__init__.py", "test_execution.py", "test_runtime.py"} {
		run(t, "", nil, "cp", filepath.Join(checkout, "tests", name), dir)
	}
	run(t, "", nil, "cp", "swerex_conftest.py", filepath.Join(dir, "conftest.py"))
	url, token := serveE2B(t)
	got := pytest(t, python, filepath.Dir(dir), []string{"SWEREX_URL=" + url + "/swerex/agents-box", "SWEREX_KEY=" + token}, "--asyncio-mode=auto", "tests")
	compareWith(t, "swerex-expected.json", got)
}

//go:build compat

package compat_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestComputeSDKSuite runs ComputeSDK's tests of providers with its provider for E2B, from the checkout that
// COMPUTESDK_SUITE names. The packages that the provider uses come from npm.
func TestComputeSDKSuite(t *testing.T) {
	checkout := os.Getenv("COMPUTESDK_SUITE")
	if checkout == "" {
		t.Skip("set COMPUTESDK_SUITE to a checkout of github.com/computesdk/computesdk")
	}
	dir := t.TempDir()
	run(t, "", nil, "cp", "-r", filepath.Join(checkout, "packages", "e2b", "src"), filepath.Join(dir, "tests"))
	run(t, "", nil, "cp", "-r", filepath.Join(checkout, "packages", "test-utils", "src"), filepath.Join(dir, "test-utils"))
	linkModules(t, filepath.Join(dir, "node_modules"), filepath.Join("suite", "node_modules"), "node_modules")
	const config = `import { defineConfig } from 'vitest/config'
export default defineConfig({
  resolve: { alias: { '@computesdk/test-utils': new URL('./test-utils/index.ts', import.meta.url).pathname } },
  test: { testTimeout: 60_000 },
})
`
	if err := os.WriteFile(filepath.Join(dir, "vitest.config.mts"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	url, token := serveE2B(t)
	env := e2bEnv(url, "e2b_"+hex.EncodeToString([]byte(token)))
	out := run(t, dir, env, "npx", "vitest", "run", "--reporter=json", "--outputFile=results.json")
	t.Logf("%s", tail(out, 3000))
	got := map[string]expectation{}
	for name, e := range results(t, filepath.Join(dir, "results.json"), dir) {
		if e.Result == "pending" || e.Result == "todo" {
			e.Result = "skipped"
		}
		got[strings.TrimPrefix(name, "__tests__/")] = e
	}
	compareWith(t, "computesdk-expected.json", got)
}

// linkModules makes a folder with links to the packages of other folders. If two folders have the same package, the
// earlier folder wins.
func linkModules(t *testing.T, dir string, others ...string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		modules, err := filepath.Abs(other)
		if err != nil {
			t.Fatal(err)
		}
		packages, err := os.ReadDir(modules)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packages {
			if err := os.Symlink(filepath.Join(modules, p.Name()), filepath.Join(dir, p.Name())); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
}

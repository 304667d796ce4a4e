package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Settings that are added to a configuration take effect, and settings of the host stay. Real OpenSSL reads it.
func TestOpenSSLDrawsFromKernel(t *testing.T) {
	t.Parallel()
	if randomProvider == "" {
		t.Skipf("there is no provider for %s", runtime.GOARCH)
	}
	provider := filepath.Join(t.TempDir(), "random.so")
	if err := os.WriteFile(provider, []byte(randomProvider), 0o644); err != nil {
		t.Fatal(err)
	}
	debian := "HOME = .\nopenssl_conf = openssl_init # comment\n[openssl_init]\nproviders = provider_sect\n\n[provider_sect]\ndefault = default_sect\n[default_sect]\n# activate = 1\n[req]\ndistinguished_name = dn\n[dn]\n"
	for name, c := range map[string]struct {
		config string
		ours   bool
	}{
		"none":              {"", true},
		"nothing of it":     {"[ req ]\ndistinguished_name = dn\n[ dn ]\n", true},
		"an empty start":    {"openssl_conf = start\n[start]\n[other]\na = b", true},
		"as Debian has it":  {debian, true},
		"with Windows ends": {strings.ReplaceAll(debian, "\n", "\r\n"), true},
		"other generators":  {"openssl_conf=s\n[s]\nrandom=r\n[r]\nrandom=HASH-DRBG\n", false},
		"other providers":   {"openssl_conf=s\n[s]\nproviders=p\n[p]\nbase=b\nlegacy=b\n[b]\nactivate=1\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := filepath.Join(t.TempDir(), "openssl.cnf")
			text := withProvider(c.config)
			if !strings.Contains(text, c.config) {
				t.Errorf("the host's configuration is not in %s", text)
			}
			if err := os.WriteFile(config, []byte(strings.ReplaceAll(text, providerFile, provider)), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("openssl", "list", "-random-generators", "-providers")
			cmd.Env = append(os.Environ(), "OPENSSL_CONF="+config)
			out, err := cmd.CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("CTR-DRBG @ hutch")) != c.ours {
				t.Errorf("openssl says %s, %v", out, err)
			}
			if cmd := exec.Command("openssl", "rand", "-hex", "8"); c.ours {
				cmd.Env = append(os.Environ(), "OPENSSL_CONF="+config)
				if out, err := cmd.CombinedOutput(); err != nil || len(out) != 17 {
					t.Errorf("openssl rand gives %q, %v", out, err)
				}
			}
		})
	}
}

// The committed provider is what the compiler makes of its source. The test is skipped with any other compiler than
// the one that made it.
func TestProviderIsItsSource(t *testing.T) {
	t.Parallel()
	if randomProvider == "" {
		t.Skipf("there is no provider for %s", runtime.GOARCH)
	}
	version, err := exec.Command("cc", "-dumpfullversion").Output()
	if err != nil {
		t.Skipf("there is no C compiler: %v", err)
	}
	if !strings.Contains(randomProvider, strings.TrimSpace(string(version))) {
		t.Skipf("the provider was not made by cc %s", version)
	}
	dir := t.TempDir()
	for _, name := range []string{"Makefile", "provider.c"} {
		text, err := os.ReadFile(filepath.Join("random", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("make", "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := os.ReadFile(filepath.Join(dir, "provider_amd64.so"))
	if err != nil || string(made) != randomProvider {
		t.Errorf("it makes %d other bytes: run make -B -C internal/image/random and commit the result (%v)", len(made), err)
	}
}

// Programs inside use the kernel's random numbers. Only strace could show that directly, so the test checks the names
// of the generator and of the function.
func TestRandomNumbersInside(t *testing.T) {
	t.Parallel()
	root := hostImage(t)
	for program, command := range map[string]string{
		"openssl": "env -u OPENSSL_CONF openssl list -random-generators | grep -c 'CTR-DRBG @ hutch'",
		"node": `echo '
			const c = require("node:crypto"), assert = require("assert")
			assert.throws(() => c.randomUUID(null)); assert.throws(() => c.randomInt(), { code: "ERR_INVALID_ARG_TYPE" })
			assert.throws(() => c.randomInt(5, 5), { code: "ERR_OUT_OF_RANGE" }); assert.throws(() => c.randomInt(1, 3, "x"))
			assert.throws(() => (0, crypto.randomUUID)(), TypeError)
			assert.match(c.randomUUID({ disableEntropyCache: false }), /^[0-9a-f-]{36}$/); assert.match(crypto.randomUUID(), /^[0-9a-f-]{36}$/)
			const seen = new Set(); for (let i = 0; i < 999; i++) seen.add(c.randomInt(-1, 2)); assert.deepEqual([...seen].sort(), [-1, 0, 1])
			c.randomInt(1, (err, n) => { assert(err === undefined && n === 0); console.log(1) })' > /tmp/t.cjs && node /tmp/t.cjs`,
	} {
		if _, ok := root.LookPath(program); !ok || randomProvider == "" {
			continue
		}
		if out, stderr, code := inside(t, root, nil, command); out != "1\n" || code != 0 {
			t.Errorf("%s: %q, %d: %s", program, out, code, stderr)
		}
	}
}

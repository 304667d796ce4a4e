package compat_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"hutch/client"
	"hutch/internal/daemon"
	"hutch/internal/datadir"
	"hutch/internal/driver"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/image"
)

// e2bResults are what the programs of E2B's clients print if every call has the same result as with E2B.
const e2bResults = `{"running": true, "stdout": "hello\n/home/user\n", "stderr": "oops\n", "exit": 3, "read": "first", "files": ["a.txt"],
	"code": "21", "kept": "40", "listed": true, "paused": "paused", "kept2": "first", "goesOn": true, "rebooted": true, "rules": true, "killed": true, "gone": true, "measured": true, "volume": "kept\n", "volumes": true, "built": "from the client|user|/home/user|1|ready", "tagged": true, "failed": true}`

// TestE2B runs a program of each of E2B's SDKs, at their newest releases. Only its environment names this server.
func TestE2B(t *testing.T) {
	t.Parallel()
	url, token := serveE2B(t)
	loadDebian(t, url, token, "debian-for-e2b:1")
	env := e2bEnv(url, token)
	t.Run("JavaScript", func(t *testing.T) {
		t.Parallel()
		if _, err := os.Stat(filepath.Join("node_modules", "e2b")); err != nil {
			hutchtest.Skip(t, "E2B's packages are not installed: run `test/compat/install`")
		}
		checkE2B(t, runNode(t, "e2b_client.mjs", env...))
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		checkE2B(t, runPython(t, pythonWith(t, "e2b_code_interpreter"), "e2b_client.py", env...))
	})
}

// e2bEnv returns the environment variables that make a client of E2B use this server.
func e2bEnv(url, token string) []string {
	return []string{"E2B_API_KEY=" + token, "E2B_API_URL=" + url + "/e2b", "E2B_SANDBOX_URL=" + url, "E2B_DOMAIN=", "E2B_DEBUG="}
}

func checkE2B(t *testing.T, out string) {
	t.Helper()
	var got, want map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("it printed %q: %v", out, err)
	}
	if err := json.Unmarshal([]byte(e2bResults), &want); err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		if !reflect.DeepEqual(got[name], w) {
			t.Errorf("%s: %#v, not %#v", name, got[name], w)
		}
	}
}

// runNode runs a script of this folder and returns what it prints.
func runNode(t *testing.T, script string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v after\n%s\n%s", script, err, out, errs.Bytes())
	}
	return string(out)
}

// loadDebian loads a Debian into the server under some names.
func loadDebian(t *testing.T, url, token string, names ...string) {
	t.Helper()
	for _, name := range names {
		loadImage(t, url, token, name, func(w *tar.Writer) error { return debian.WriteWith(w, "dash", "findutils") })
	}
}

// loadImage loads an image with one layer into the server. The function fill writes the layer.
func loadImage(t *testing.T, url, token, name string, fill func(*tar.Writer) error) {
	t.Helper()
	var archive bytes.Buffer // made first, because a server does not wait that long for the first byte
	if err := debian.WriteArchive(&archive, name, fill); err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(url, token).LoadImages(t.Context(), "", &archive); err != nil {
		t.Fatal(err)
	}
}

// serveE2B starts a whole server and returns its URL and token.
func serveE2B(t *testing.T) (url, token string) {
	t.Helper()
	return serveE2BWith(t, func(*daemon.Config) {})
}

// serveE2BWith is serveE2B with a change of the configuration.
func serveE2BWith(t *testing.T, change func(*daemon.Config)) (url, token string) {
	t.Helper()
	dir := hutchtest.Dir(t)
	data, err := datadir.Open(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := daemon.Config{
		Data: data, Listen: "127.0.0.1:0", Log: daemon.Log{To: t.Output(), Level: slog.LevelWarn},
		Sandboxes: daemon.Sandboxes{
			Drivers: func(dir string, _ *slog.Logger) ([]driver.Driver, error) {
				return []driver.Driver{hutchtest.Driver(t, "gvisor", filepath.Join(dir, "gvisor"))}, nil
			},
			Image: image.HostOptions{Path: os.Getenv("PATH")}, ColdCompilers: true, DestroyAll: true,
		},
	}
	change(&cfg)
	d, err := daemon.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, d.Close()); err != nil {
			t.Error(err)
		}
	})
	token, _ = d.Token()
	return d.URL(), token
}

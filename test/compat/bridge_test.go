package compat_test

import (
	"archive/tar"
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/compat/bridge"
	"hutch/internal/engine"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/tokens"
	"hutch/internal/volume"
)

// bridgeChecks are what bridge_client.py prints.
var bridgeChecks = []string{
	"create", "exec", "exec gives every byte", "time limit", "the folder is /workspace", "write and read", "a missing file", "ls", "rm", "persist", "hydrate",
	"two terminals", "a terminal keeps its program", "a terminal's exit code", "resume", "delete", "resume from the snapshot", "mount", "what a mount writes stays",
	"a wrong key", "a silent command ends",
}

// TestOpenAIAgents drives the bridge with CloudflareSandboxClient of openai-agents.
func TestOpenAIAgents(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "agents")
	volumes, err := volume.Open(hutchtest.Dir(t), volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := hutchtest.Engine(t, "native", func(o *engine.Options) { o.Volumes = volumes })
	list := volume.NewService(volume.ServiceOptions{Store: volumes, Uses: e.VolumeUses, Save: e.SaveVolumes})
	if _, err := list.CreateVolume(t.Context(), hutch.VolumeRequest{Name: "models"}); err != nil {
		t.Fatal(err)
	}
	if _, err := list.WriteVolume(t.Context(), "models", "", archiveOf(t, "given", "from the volume\n")); err != nil {
		t.Fatal(err)
	}
	h := bridge.NewHandler(e, bridge.Options{Volumes: list})
	srv := httptest.NewServer(guard.New(h, guard.Options{Check: tokens.Only("a-token"), Unbounded: bridge.Uploads}))
	defer srv.Close()
	defer h.Close()
	out := runPython(t, python, "bridge_client.py", "BRIDGE_URL="+srv.URL, "CLOUDFLARE_SANDBOX_API_KEY=a-token")
	if got := strings.Split(strings.TrimSpace(out), "\n"); strings.Join(got, "\n") != strings.Join(bridgeChecks, "\n") {
		t.Errorf("it printed %q", got)
	}
	if left, err := e.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(left) > 0 {
		t.Errorf("%d sandboxes are left: %v", len(left), err)
	}
}

func archiveOf(t *testing.T, name, content string) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte(content))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

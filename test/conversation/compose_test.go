package conversation_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// composed holds the fields of a Compose file that the test checks.
type composed struct {
	Services map[string]struct {
		Build       struct{ Context, Dockerfile string }
		Image       string
		Environment map[string]string
		Ports       []string
		Volumes     []string
	}
}

func compose(t *testing.T, path string) (c composed) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return c
}

const local, tunnel = "../../deploy/compose.yaml", "../../deploy/compose.tunnel.yaml"

func TestCompose(t *testing.T) {
	t.Parallel()
	s := compose(t, local).Services["conversation"]
	for _, name := range []string{"MCP_API_TOKEN", "FILE_SECRET"} {
		if !strings.HasPrefix(s.Environment[name], "${"+name+":?") {
			t.Errorf("%s is %q: it must be given, and have no default", name, s.Environment[name])
		}
	}
	for _, name := range []string{"PUBLIC_BASE_URL", "MCP_HTTP_ADDR", "SANDBOX_ROOT"} {
		if s.Environment[name] == "" {
			t.Errorf("%s is not set", name)
		}
	}
	if len(s.Ports) != 1 || !strings.HasPrefix(s.Ports[0], "127.0.0.1:") {
		t.Errorf("ports %q: for this machine alone", s.Ports)
	}
	if _, err := os.Stat("../../" + s.Build.Dockerfile); err != nil || s.Build.Context != ".." {
		t.Errorf("build %+v, %v", s.Build, err)
	}
	if !strings.HasPrefix(s.Environment["SANDBOX_ROOT"], "/var/lib/hutch/") || len(s.Volumes) != 1 || s.Volumes[0] != "data:/var/lib/hutch" {
		t.Errorf("the conversations are in no volume: %+v", s)
	}
	beside := compose(t, tunnel).Services
	if e := beside["tunnel"].Environment["TUNNEL_TOKEN"]; !strings.HasPrefix(e, "${TUNNEL_TOKEN:?") || len(beside["conversation"].Ports) != 0 {
		t.Errorf("tunnel %+v", beside)
	}
	if image := beside["tunnel"].Image; !strings.HasPrefix(image, "cloudflare/cloudflared:2") {
		t.Errorf("image %q: say which", image)
	}
}

// TestComposeConfig makes Docker itself read the files, if there is a Docker.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		t.Skip("docker compose is not here; TestCompose reads the files without it")
	}
	cmd := exec.Command("docker", "compose", "-f", local, "-f", tunnel, "config", "--quiet")
	cmd.Env = append(os.Environ(), "MCP_API_TOKEN=x", "FILE_SECRET=x", "TUNNEL_TOKEN=x", "PUBLIC_BASE_URL=https://code.example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

package install_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/dockerd"
	"hutch/internal/hutchtest/testimage"
)

// packages replace those of deploy/Dockerfile. They are fewer languages, so that the base image of the tests has all of
// them.
const packages = "bash ca-certificates coreutils procps python3 tar"

// token is the token of the servers.
const token = "a-token-that-is-long-enough-for-tests"

// engine is a Docker engine whose Docker Hub has the base images of deploy.
type engine struct {
	*dockerd.Engine
	program string // docker
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	for _, name := range []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"} {
		hutchtest.Program(t, name)
	}
	e := &engine{dockerd.Start(t), "/usr/bin/docker"} // the client has the engine's own version
	if _, err := os.Stat(e.program); err != nil {
		e.program = "docker"
	}
	l, err := e.Listen(dockerd.Mirror)
	if err != nil {
		t.Fatal(err)
	}
	hub := &http.Server{Handler: registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))}
	go hub.Serve(l)
	t.Cleanup(func() { hub.Close() })
	outside := httptest.NewServer(hub.Handler) // for this process
	t.Cleanup(outside.Close)
	if err := publish(strings.TrimPrefix(outside.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	return e
}

// tunnel replaces cloudflared: it prints as JSON what deploy/compose.tunnel.yaml gives it.
const tunnel = `#!/usr/bin/python3
import json, os, signal, sys, urllib.request
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "args": sys.argv[1:], "token": os.environ["TUNNEL_TOKEN"],
    "capabilities": int(status["CapBnd"], 16), "noNewPrivileges": int(status["NoNewPrivs"]), "readOnly": os.statvfs("/").f_flag & os.ST_RDONLY,
    "health": urllib.request.urlopen("http://conversation:8080/health").status,
}), flush=True)
signal.pause()
`

// publish pushes the base images to a registry.
func publish(at string) error {
	file, err := os.CreateTemp("", "hutch-layer-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	w := tar.NewWriter(file)
	if err := errors.Join(debian.WriteWith(w, append(strings.Fields(packages), "apt", "dash", "mawk", "tini")...), w.Close()); err != nil {
		return err
	}
	base, err := tarball.LayerFromFile(file.Name(), tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return err
	}
	program, err := testimage.Layer("tunnel", tunnel)
	if err != nil {
		return err
	}
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	os12, err1 := testimage.Image(v1.Config{Env: path, Cmd: []string{"bash"}}, base)
	cloudflared, err2 := testimage.Image(v1.Config{Env: path, Entrypoint: []string{"/tunnel"}}, base, program)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return errors.Join(testimage.Push(at, "library/debian:12-slim", os12), testimage.Push(at, "cloudflare/cloudflared:2026.10.0", cloudflared))
}

// docker runs a command word for word, as docs/install.md has it, and returns what it prints.
func (e *engine) docker(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "docker() { "+e.program+` "$@"; }; `+command)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.Host, "DOCKER_BUILDKIT=1", "PACKAGES="+packages, "PROGRAMS=built", "SANDBOX_AUTH_TOKEN="+token,
		"MCP_API_TOKEN="+token, "FILE_SECRET="+token, "TUNNEL_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// documented returns the one line of docs/install.md that begins with a text.
func documented(t *testing.T, begin string) string {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, begin) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/install.md has %d lines that begin with %q", len(found), begin)
	}
	return found[0]
}

// get requests a page in the engine's network, with host as the name of the host, until it is there.
func (e *engine) get(t *testing.T, url, host string) string {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{DialContext: e.Dial, DisableKeepAlives: true}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		status, body := "", []byte(nil)
		if resp, derr := web.Do(req); derr == nil {
			status = resp.Status
			body, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return string(body)
			}
		} else {
			err = derr
		}
		if time.Now().After(end) {
			t.Fatalf("%s of %s: %s %v %s\n%s", url, host, status, err, body, e.docker(t, "docker logs $(docker ps -lq)"))
		}
	}
}

// TestDocker does what docs/install.md says about Docker, with a real engine.
func TestDocker(t *testing.T) {
	t.Parallel()
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // skips the test where the runtime does not work
	e := newEngine(t)
	build := strings.TrimSuffix(documented(t, "docker build -f deploy/Dockerfile --build-arg PROGRAMS=built"), " .") + " --build-arg PACKAGES='" + packages + "'"
	e.docker(t, build+" .")
	e.serves(t, build)
	t.Run("compose files", e.composes)
	e.docker(t, "test -z \"$(docker ps -aq)$(docker volume ls -q)\"")
}

// serves: a server in a container, its sandboxes over a restart and over an upgrade, and its end.
func (e *engine) serves(t *testing.T, build string) {
	start := documented(t, "docker run ")
	e.docker(t, start)
	const url = "http://127.0.0.1:7700"
	e.get(t, url+"/health", "")
	c := client.New(url, token)
	c.HTTP.Transport = &http.Transport{DialContext: e.Dial}
	t.Cleanup(c.Close)
	sb, err := c.Create(t.Context(), hutch.CreateRequest{ID: "box", Limits: hutch.Limits{Memory: 512}})
	if err != nil {
		t.Fatalf("%v\n%s", err, e.docker(t, "docker logs hutch"))
	}
	t.Logf("the sandbox is on %s", sb.Runtime)
	shell := func(command string) string {
		t.Helper()
		res, err := c.Exec(t.Context(), "box", hutch.ExecRequest{Command: command}, nil)
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%s: %+v, %v\n%s", command, res, err, e.docker(t, "docker logs hutch"))
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	shell("echo kept > index.html")
	if _, err := c.StartProcess(t.Context(), "box", hutch.ProcessRequest{Name: "web", Command: "exec python3 -m http.server 8000"}); err != nil {
		t.Fatal(err)
	}
	port, err := c.Expose(t.Context(), "box", hutch.ExposeRequest{Port: 8000})
	if err != nil {
		t.Fatal(err)
	}
	at, _ := strings.CutPrefix(port.URL, "http://")
	check := func(after string) {
		t.Helper()
		e.get(t, url+"/health", "")
		if note := shell("cat index.html"); note != "kept" {
			t.Errorf("after %s: the file has %q", after, note)
		}
		if page := e.get(t, url, strings.TrimSuffix(at, "/")); page != "kept\n" {
			t.Errorf("after %s: the preview has %q", after, page)
		}
	}
	check("the start")
	e.docker(t, "docker restart hutch")
	check("a restart")
	e.docker(t, build+" --label newer=true .")
	e.docker(t, documented(t, "docker stop hutch"))
	e.docker(t, start)
	if label := e.docker(t, "docker inspect -f '{{ index .Config.Labels \"newer\" }}' hutch"); label != "true" {
		t.Errorf("the earlier image runs: label %q", label)
	}
	check("an upgrade")
	if dead := e.docker(t, "docker exec hutch sh -c 'grep -sl ^State:.Z /proc/[0-9]*/status || true'"); dead != "" {
		t.Errorf("dead processes whose parent does not wait for them: %q", dead)
	}
	e.docker(t, documented(t, "docker rm -f hutch"))
}

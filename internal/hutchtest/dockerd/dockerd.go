// Package dockerd starts a Docker engine for a test, of the Debian package docker.io.
package dockerd

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"hutch/internal/hutchtest"
)

// Start starts an engine without a network, and returns its address as DOCKER_HOST has it. The test is skipped where
// there is no Docker, or no root.
func Start(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a Docker engine")
	}
	program, err := exec.LookPath("dockerd")
	if err != nil {
		hutchtest.Skip(t, "dockerd is missing (apt-get install docker.io)")
	}
	dir := hutchtest.Dir(t)
	host := "unix://" + filepath.Join(dir, "s")
	cmd := exec.Command(program, "-H", host, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Logf("dockerd ended with %v\n%s", err, log.Bytes())
		}
	})
	api := Client(t, host)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := api.Ping(t.Context(), client.PingOptions{})
		if err == nil {
			return host
		}
		if time.Now().After(end) {
			t.Fatalf("dockerd does not answer: %v", err)
		}
	}
}

// Client returns a client of an engine.
func Client(t testing.TB, host string) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return api
}

// Build builds an image as docker build does, of a context with these files.
func Build(t testing.TB, host, tag string, files map[string][]byte) {
	t.Helper()
	var context bytes.Buffer
	w := tar.NewWriter(&context)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		w.Write(content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	res, err := Client(t, host).ImageBuild(t.Context(), &context, client.ImageBuildOptions{Tags: []string{tag}})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if out, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(out), `"error"`) {
		t.Fatalf("docker build: %v\n%s", err, out)
	}
}

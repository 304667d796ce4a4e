// Package server starts whole servers for tests: in this process, or as the program.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/client"
	"hutch/internal/daemon"
	"hutch/internal/hutchtest"
)

// Start starts a daemon and returns a client with its first token. The caller calls end, which fails the test if the
// daemon does not end well.
func Start(t testing.TB, cfg daemon.Config) (d *daemon.Daemon, c *client.Client, end func()) {
	t.Helper()
	cfg.Sandboxes.ColdCompilers = true // it would compile in the background for a minute
	d, err := daemon.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	token, _ := d.Token()
	return d, client.New(d.URL(), token), func() {
		cancel()
		if err := errors.Join(<-served, d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Program runs `hutch serve` on a data folder with an environment, and returns the variables that tell clients where it
// is: HUTCH_URL, then HUTCH_TOKEN. It ends with the test, and leaves no sandbox.
func Program(t testing.TB, data string, env []string, args ...string) []string {
	t.Helper()
	said, err := os.Create(filepath.Join(data, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.Command(hutchtest.Program(t, "hutch"), append([]string{"serve", "--listen", "127.0.0.1:0", "--quiet", "--cold-compilers", "--data", data}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var where []string
	t.Cleanup(func() {
		rm := exec.Command(hutchtest.Program(t, "hutch"), "rm", "--all", "--force")
		rm.Env = append(env[:len(env):len(env)], where...)
		if out, err := rm.CombinedOutput(); err != nil {
			t.Errorf("remove what the test made: %v\n%s", err, out)
		}
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if where, err = announced(said.Name()); err == nil {
			return where
		}
	}
	t.Fatal(err)
	return nil
}

var (
	urlLine   = regexp.MustCompile(`(?m)^  URL +(\S+)`)
	tokenLine = regexp.MustCompile(`(?m)^  token +(\S+)`)
)

// announced reads where a server is from its output.
func announced(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	url, token := urlLine.FindSubmatch(text), tokenLine.FindSubmatch(text)
	switch {
	case err != nil:
		return nil, err
	case url == nil || token == nil || !bytes.Contains(text, []byte("paste")):
		return nil, fmt.Errorf("the server has not said that it is ready: %s", text)
	}
	secret, err := os.ReadFile(string(token[1])) // without a terminal, the announcement names the file
	return []string{"HUTCH_URL=" + string(url[1]), "HUTCH_TOKEN=" + strings.TrimSpace(string(secret))}, err
}

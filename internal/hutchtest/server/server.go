// Package server starts whole servers for tests, in this process or as separate processes.
package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/daemon"
	"hutch/internal/hutchtest"
)

// Start starts a daemon in this process, and returns a client with the daemon's first token. The caller must call end,
// which fails the test if the daemon does not end without an error.
func Start(t testing.TB, cfg daemon.Config) (d *daemon.Daemon, c *client.Client, end func()) {
	t.Helper()
	cfg.Sandboxes.ColdCompilers = true // otherwise the daemon would compile in the background for a minute
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

// Process is a running `hutch serve`, and a client with its administrator's token.
type Process struct {
	*client.Client
	URL string

	cmd *exec.Cmd
}

// Token is the administrator's token of the servers that Run starts.
const Token = "token-of-a-test"

// Options say how to run `hutch serve`. Only Data is required.
type Options struct {
	Data    string    // the data folder
	Flags   []string  // more flags; a later one overrides an earlier one
	Env     []string  // more variables
	Program string    // path of the program; default: the built program
	Stderr  io.Writer // default: the output of the test
}

// Run starts `hutch serve` without rate limits, and returns when it answers. The caller must call End, EndEmpty or
// Kill.
func Run(t testing.TB, o Options) *Process {
	t.Helper()
	p := &Process{}
	if o.Program == "" {
		o.Program = hutchtest.Program(t, "hutch")
	}
	if o.Stderr == nil {
		o.Stderr = t.Output()
	}
	p.cmd = exec.Command(o.Program, append([]string{"serve", "--listen", "127.0.0.1:0", "--quiet", "--cold-compilers", "--data", o.Data,
		"--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1"}, o.Flags...)...)
	p.cmd.Env = append(append(os.Environ(), "SANDBOX_AUTH_TOKEN="+Token), o.Env...)
	p.cmd.Stderr, p.cmd.WaitDelay = o.Stderr, time.Second // a delay, because the sandboxes of a killed server keep stderr open
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url := urlLine.FindStringSubmatch(lines.Text()); url != nil {
			p.URL, p.Client = url[1], client.New(url[1], Token)
			go io.Copy(io.Discard, out)
			return p
		}
	}
	t.Fatalf("the server did not start: %v", p.cmd.Wait())
	return nil
}

// PID returns the id of the server's process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the server's process.
func (p *Process) Signal(s os.Signal) { p.cmd.Process.Signal(s) }

// AwaitEnd waits for the end of the server.
func (p *Process) AwaitEnd() error {
	if err := p.cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil
}

// End ends the server, and fails the test if it ends with an error.
func (p *Process) End(t testing.TB) {
	t.Helper()
	p.Client.Close()
	p.Signal(os.Interrupt)
	if err := p.AwaitEnd(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// EndEmpty destroys all sandboxes, because they would outlive the server, and then ends the server.
func (p *Process) EndEmpty(t testing.TB) {
	t.Helper()
	p.Empty(t)
	p.End(t)
}

// Empty destroys all sandboxes.
func (p *Process) Empty(t testing.TB) {
	t.Helper()
	list, err := p.Sandboxes(context.Background(), hutch.Filter{Brief: true})
	if err != nil {
		t.Error(err)
	}
	var all sync.WaitGroup
	for _, sb := range list {
		all.Go(func() { p.Destroy(context.Background(), sb.ID, true) })
	}
	all.Wait()
}

// Kill ends the server as a crash would.
func (p *Process) Kill() {
	p.Signal(os.Kill)
	p.AwaitEnd()
}

// Program runs `hutch serve` on a data folder with an environment, and returns the environment variables for clients:
// HUTCH_URL, then HUTCH_TOKEN. The server ends with the test and leaves no sandboxes behind.
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
		cmd.Process.Signal(os.Interrupt)
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

// announced reads the URL and token of a server from its output.
func announced(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	url, token := urlLine.FindSubmatch(text), tokenLine.FindSubmatch(text)
	switch {
	case err != nil:
		return nil, err
	case url == nil || token == nil || !bytes.Contains(text, []byte("paste")):
		return nil, fmt.Errorf("the server has not said that it is ready: %s", text)
	}
	secret, err := os.ReadFile(string(token[1])) // without a terminal, the output names the file with the token
	return []string{"HUTCH_URL=" + string(url[1]), "HUTCH_TOKEN=" + strings.TrimSpace(string(secret))}, err
}

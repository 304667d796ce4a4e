package console

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/browser"
	"hutch/internal/hutchtest/messages"
)

var only = flag.String("specs", "", "the specs to run, as Playwright names them; default all")

const (
	token = "the-token-of-the-console-tests"
	// patience is how long the specs of one runtime may take.
	patience = 10 * time.Minute
)

func TestConsole(t *testing.T) {
	for _, args := range [][]string{{"gvisor"}, {"native", "--grep", "@runtimes"}} {
		t.Run(args[0], func(t *testing.T) {
			url := serve(t, args[0])
			playwright(t, url, args[1:]...)
		})
	}
}

// playwright runs the specs.
func playwright(t *testing.T, url string, args ...string) {
	if _, err := os.Stat("node_modules"); err != nil {
		hutchtest.Skip(t, "the packages of test/console are missing: npm ci --prefix test/console")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := hutchtest.Dir(t)
	cmd := exec.CommandContext(ctx, "node_modules/.bin/playwright", append([]string{"test"}, append(args, strings.Fields(*only)...)...)...)
	cmd.Env = append(os.Environ(), "HUTCH_URL="+url, "HUTCH_CONSOLE="+strings.Replace(url, "127.0.0.1", "hutch.localhost", 1), "HUTCH_TOKEN="+token, "HUTCH_PROGRAM="+hutchtest.Program(t, "hutch"), "CHROMIUM="+browser.Program(t), "CONSOLE_OUTPUT="+dir, "TMPDIR="+dir, "HOME="+dir, "NO_COLOR=1")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its browsers
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		t.Errorf("the specs: %v", err)
	}
}

// serve starts a server with some more flags that ends with the test, and returns its URL.
func serve(t *testing.T, runtime string, flags ...string) string {
	t.Helper()
	hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	args := []string{"serve", "--quiet", "--listen", "127.0.0.1:0", "--data", filepath.Join(hutchtest.Dir(t), "data"),
		"--runtime", runtime, "--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1", "--cold-compilers"}
	cmd := exec.Command(hutchtest.Program(t, "hutch"), append(append(args, messages.Flags(t)...), flags...)...)
	cmd.Env = append(os.Environ(), "SANDBOX_AUTH_TOKEN="+token, "PATH=/usr/bin:"+os.Getenv("PATH")) // the system's Python has matplotlib
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	url := ""
	t.Cleanup(func() { end(t, cmd, url) })
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "URL" {
			url = words[1]
		}
	}
	if url == "" {
		t.Fatal("the server did not start")
	}
	return url
}

// end destroys the sandboxes, which would outlive their server, and ends the server.
func end(t *testing.T, cmd *exec.Cmd, url string) {
	if url != "" {
		svc := client.New(url, token)
		list, err := svc.Sandboxes(context.Background(), hutch.Filter{Brief: true})
		if err != nil {
			t.Error(err)
		}
		for _, sb := range list {
			svc.Destroy(context.Background(), sb.ID, true)
		}
		svc.Close()
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

package console

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/browser"
	"hutch/internal/hutchtest/messages"
	"hutch/internal/hutchtest/server"
)

var only = flag.String("specs", "", "the specs to run, as Playwright names them; default all")

// patience is how long the specs of one runtime may take.
const patience = 10 * time.Minute

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
	cmd.Env = append(os.Environ(), "HUTCH_URL="+url, "HUTCH_CONSOLE="+strings.Replace(url, "127.0.0.1", "hutch.localhost", 1), "HUTCH_TOKEN="+server.Token, "HUTCH_PROGRAM="+hutchtest.Program(t, "hutch"), "CHROMIUM="+browser.Program(t), "CONSOLE_OUTPUT="+dir, "TMPDIR="+dir, "HOME="+dir, "NO_COLOR=1")
	again := "../../bin/tests-run-again" // make test prints this file
	if _, err := os.Stat(again); err == nil {
		cmd.Env = append(cmd.Env, "CONSOLE_AGAIN="+filepath.Join(again, "console"))
	}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // Playwright then ends its browsers
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		t.Errorf("the specs: %v", err)
	}
}

// serve starts a server with additional flags, and returns its URL. The server ends with the test.
func serve(t *testing.T, runtime string, flags ...string) string {
	t.Helper()
	hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	p := server.Run(t, server.Options{
		Data: filepath.Join(hutchtest.Dir(t), "data"), Flags: append(append([]string{"--runtime", runtime}, messages.Flags(t)...), flags...),
		Env: []string{"PATH=/usr/bin:" + os.Getenv("PATH")}, // the system's Python has matplotlib
	})
	t.Cleanup(func() { p.EndEmpty(t) })
	return p.URL
}

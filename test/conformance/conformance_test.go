// Package conformance_test runs the protocol's own conformance suite, which is a Node program, against our handler
// and the guard. The server is built with fixtures, because the suite calls tools by fixed names.
package conformance_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

// scored is how many scenarios of a revision count; all of them must pass.
var scored = map[string]int{"2025-11-25": 30, "2026-07-28": 37}

func TestConformance(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, ".bin", "conformance")); err != nil {
		hutchtest.Skip(t, "the conformance suite is not installed: run npm ci in test/conformance")
	}
	url := serve(t)
	for revision, want := range scored {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(modules, ".bin", "conformance"), "server", "--url", url, "--requirements", revision, "-o", t.TempDir())
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(modules, ".bin")+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
				t.Fatal(err)
			}
			passed, unscored := count(t, string(out))
			t.Logf("%s: %d scenarios passed; not scored: %d run", revision, passed, unscored)
			if err != nil || passed < want {
				t.Errorf("%v; %d scenarios passed, want the %d that are scored:\n%s", err, passed, want, tail(out))
			}
		})
	}
}

var (
	scenario = regexp.MustCompile(`(?m)^([✓✗]) [a-z0-9-]+: \d+ passed, \d+ failed$`)
	aside    = regexp.MustCompile(`Not scored for \S+: (\d+) scenario\(s\) run, (\d+) failing`)
)

// count reads the suite's summary: how many of the scored scenarios passed, and how many others ran.
func count(t *testing.T, out string) (passed, unscored int) {
	t.Helper()
	for _, line := range scenario.FindAllStringSubmatch(out, -1) {
		if line[1] == "✓" {
			passed++
		}
	}
	if m := aside.FindStringSubmatch(out); m != nil {
		run, _ := strconv.Atoi(m[1])
		failing, _ := strconv.Atoi(m[2])
		return passed - (run - failing), run
	}
	return passed, 0
}

func tail(out []byte) []byte { return out[max(0, len(out)-12_000):] }

// serve builds the server with the suite's fixtures, starts it, and returns its
// address.
func serve(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "server")
	if out, err := exec.Command("go", "build", "-tags", "conformance", "-o", program, "./server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe() // the server ends when this is closed
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// Package compat_test drives the server with the clients of other projects, at the versions in its lock files.
package compat_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// pythonWith returns the Python of the folder venv, and skips the test if this Python does not have the module.
func pythonWith(t *testing.T, module string) string {
	t.Helper()
	python, err := filepath.Abs(filepath.Join("venv", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
		hutchtest.Skip(t, "the Python module %s is not installed: run `test/compat/install`", module)
	}
	return python
}

// runPython runs a script of this folder and returns what it prints.
func runPython(t *testing.T, python, script string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, script)
	cmd.Env = append(os.Environ(), append(env, "PYTHONUNBUFFERED=1", "NO_PROXY=*", "OPENAI_AGENTS_DISABLE_TRACING=1")...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v after\n%s\n%s", script, err, out, errs.Bytes())
	}
	return string(out)
}

// checkLines fails the test unless a program printed n lines that begin with "ok ".
func checkLines(t *testing.T, out string, want int) {
	t.Helper()
	if got := strings.Count("\n"+out, "\nok "); got != want {
		t.Errorf("%d checks passed, want %d:\n%s", got, want, out)
	}
}

package sdk

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
)

const python = "../../sdk/python"

// environment returns the folder in which the packages of a lock file are installed for an interpreter. It makes the
// folder first if it is missing.
func environment(interpreter, lock string) (string, error) {
	text, err := os.ReadFile(filepath.Join(python, lock))
	if err != nil {
		return "", err
	}
	if interpreter != defaultPython {
		text = append(text, interpreter...)
	}
	dir, err := filepath.Abs(fmt.Sprintf("../../bin/python-%.12x", sha256.Sum256(text)))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{interpreter, "-m", "venv", dir},
		{filepath.Join(dir, "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", filepath.Join(python, lock)},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644)
}

const defaultPython = "python3"

// installing is held while packages are installed.
var installing sync.Mutex

// run runs a program of the SDK's tools in the folder of the SDK.
func run(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	return runIn(t, "requirements.lock", env, program, args...)
}

// runIn is run with the packages of a lock file.
func runIn(t *testing.T, lock string, env []string, program string, args ...string) string {
	t.Helper()
	return runWith(t, defaultPython, lock, env, program, args...)
}

// runWith is runIn with another interpreter than the machine's own.
func runWith(t *testing.T, interpreter, lock string, env []string, program string, args ...string) string {
	t.Helper()
	installing.Lock()
	dir, err := environment(interpreter, lock)
	installing.Unlock()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		hutchtest.Skip(t, "the packages of %s are missing: %v", lock, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "bin", program), args...)
	cmd.Dir = python
	cmd.Env = append(os.Environ(), append(env, "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPython runs the tests of the Python SDK, the contract among them, against a server.
func TestPython(t *testing.T) {
	s := serve(t)
	out := run(t, []string{"HUTCH_URL=" + s.URL, "HUTCH_TOKEN=" + server.Token}, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
	t.Log(out)
}

// TestPythonSource checks three things: the source passes the type checker and the linter, the generated files are up
// to date, and the types of the SDK match the API.
func TestPythonSource(t *testing.T) {
	run(t, nil, "python", "tools/models.py", "--check")
	run(t, nil, "python", "tools/unasync.py", "--check")
	for _, folder := range []string{".", "../../examples/python", "../../skills/hutch/templates"} {
		run(t, nil, "ruff", "check", "--no-cache", "--config", "pyproject.toml", folder)
		run(t, nil, "ruff", "format", "--no-cache", "--config", "pyproject.toml", "--check", folder)
	}
	run(t, nil, "mypy", "--cache-dir", t.TempDir())
}

// TestPythonReference makes the API reference. pdoc must warn of nothing, and must include the names that users import.
func TestPythonReference(t *testing.T) {
	if !hutchtest.Full() {
		t.Skip("make test-full has it")
	}
	dir := t.TempDir()
	runIn(t, "requirements-reference.lock", nil, "python", "tools/reference.py", dir)
	for page, name := range map[string]string{
		"hutch.html": "Hutch.create", "hutch/_sync/commands.html": "Commands.exec", "hutch/_async/processes.html": "Processes.start_process", "hutch/_sync/files.html": "Files.read_file",
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil || !strings.Contains(string(text), `id="`+name+`"`) {
			t.Errorf("the reference has no %s in %s: %v", name, page, err)
		}
	}
}

// TestPythonWheel builds the package that users install.
func TestPythonWheel(t *testing.T) {
	dir := t.TempDir()
	run(t, nil, "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--wheel-dir", dir, ".")
	wheels, _ := filepath.Glob(filepath.Join(dir, "hutch_sandbox-*.whl"))
	if len(wheels) != 1 {
		t.Fatalf("built %v", wheels)
	}
	names := run(t, nil, "python", "-m", "zipfile", "-l", wheels[0])
	for _, want := range []string{"hutch/py.typed", "hutch/_sync/client.py", "hutch/_async/client.py", "METADATA"} {
		if !strings.Contains(names, want) {
			t.Errorf("there is no %s in the wheel:\n%s", want, names)
		}
	}
}

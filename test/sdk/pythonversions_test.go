//go:build compat

package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hutch/internal/hutchtest/server"
)

// TestPythonVersions runs the contract, and the tests that need no server, with each Python of this machine whose
// version the package names.
func TestPythonVersions(t *testing.T) {
	found := pythons(t)
	if len(found) == 0 {
		t.Fatal("there is no other Python here than python3, which TestPython runs: install python3.10 to python3.13, or pyenv's")
	}
	s := serve(t)
	for version, interpreter := range found {
		t.Run(version, func(t *testing.T) {
			out := runWith(t, interpreter, "requirements.lock", []string{"HUTCH_URL=" + s.URL, "HUTCH_TOKEN=" + server.Token}, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_contract.py", "tests/test_units.py")
			t.Log(tail(out, 500))
		})
	}
}

func tail(text string, most int) string { return text[max(0, len(text)-most):] }

// pythons finds interpreters of the versions in pyproject.toml, on the PATH and in pyenv. It leaves out the version of
// python3.
func pythons(t *testing.T) map[string]string {
	t.Helper()
	home, _ := os.UserHomeDir()
	own := versionOf(t, defaultPython)
	found := map[string]string{}
	for _, version := range []string{"3.10", "3.11", "3.12", "3.13"} {
		installed, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions", version+".*/bin/python3"))
		for _, interpreter := range append(installed, "python"+version) {
			if version != own && versionOf(t, interpreter) == version {
				found[version] = interpreter
				break
			}
		}
	}
	return found
}

// versionOf returns an interpreter's version, such as 3.12, or "" if it does not run or cannot create virtual
// environments.
func versionOf(t *testing.T, interpreter string) string {
	out, _ := exec.CommandContext(t.Context(), interpreter, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])").Output()
	return strings.TrimSpace(string(out))
}

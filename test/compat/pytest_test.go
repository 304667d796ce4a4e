package compat_test

import (
	"cmp"
	"context"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// pytest runs the tests of a folder, and returns how each ended, by name. A test that fails is not an error here.
func pytest(t *testing.T, python, dir string, env []string, args ...string) map[string]expectation {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.xml")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=" + report}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), append(env, "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")...)
	out, err := cmd.CombinedOutput()
	text, missing := os.ReadFile(report)
	if missing != nil {
		t.Fatalf("pytest: %v\n%s", err, out)
	}
	var suites struct {
		Cases []struct {
			Class   string      `xml:"classname,attr"`
			Name    string      `xml:"name,attr"`
			Failure *struct{}   `xml:"failure"`
			Error   *struct{}   `xml:"error"`
			Skipped *xmlSkipped `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		t.Fatal(err)
	}
	all := map[string]expectation{}
	for _, c := range suites.Cases {
		e := expectation{Result: "passed"}
		switch {
		case c.Failure != nil || c.Error != nil:
			e.Result = "failed"
		case c.Skipped != nil:
			e = expectation{Result: "skipped", Reason: cmp.Or(c.Skipped.Message, c.Skipped.Type)}
		}
		all[c.Class+": "+c.Name] = e
	}
	t.Logf("%s", out[max(0, len(out)-4000):])
	return all
}

type xmlSkipped struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
}

// expectation is how a test of a suite ends here, and the reason if it does not pass.
type expectation struct {
	Result string `json:"result"` // passed, failed, skipped; a list can also say varies, which allows any result
	Reason string `json:"reason,omitempty"`
}

// Package sdk_test holds the SDKs to their contract (sdk/contract), each as its users install it, against a real server.
package sdk_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

var (
	urlLine   = regexp.MustCompile(`(?m)^  URL +(\S+)`)
	tokenLine = regexp.MustCompile(`(?m)^  token +(\S+)`)
)

// serve starts a server without quotas, which ends with the test and leaves no sandbox, and returns the environment for its clients:
// HUTCH_URL, then HUTCH_TOKEN.
func serve(t *testing.T, args ...string) []string {
	t.Helper()
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // the default
	data := hutchtest.Dir(t)
	said, err := os.Create(filepath.Join(data, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.Command(hutchtest.Program(t, "hutch"), append([]string{"serve", "--listen", "127.0.0.1:0", "--quiet", "--data", data,
		"--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1"}, args...)...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var where []string
	t.Cleanup(func() {
		rm := exec.Command(hutchtest.Program(t, "hutch"), "rm", "--all", "--force")
		rm.Env = append(os.Environ(), where...)
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

// announced reads where a server is from what it said.
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

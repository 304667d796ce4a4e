// Package sdk holds every client of Hutch to one contract: the cases in sdk/contract, against a real server. The Go
// client is run here; the SDKs in other languages have runners of their own, which the tests start.
package sdk

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/messages"
)

// TestMain runs all files of cases at once: most of their time is waiting.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "16")
	hutchtest.Main(m)
}

const token = "the-token-of-the-sdk-tests"

// server is a `hutch serve` with its client.
type server struct {
	*client.Client
	url string
}

// serve starts a server that ends with the test. Its sandboxes are on gVisor where that works, because only gVisor
// keeps memory.
func serve(t *testing.T) *server {
	t.Helper()
	dir := hutchtest.Dir(t)
	cmd := exec.Command(hutchtest.Program(t, "hutch"), "serve", "--quiet", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"),
		"--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1", "--cold-compilers")
	cmd.Env = append(os.Environ(), "SANDBOX_AUTH_TOKEN="+token)
	cmd.Args = append(cmd.Args, messages.Flags(t)...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	t.Cleanup(func() { s.end(t, cmd) })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "URL" {
			s.url, s.Client = words[1], client.New(words[1], token)
			return s
		}
	}
	t.Fatal("the server did not start")
	return nil
}

// end destroys the sandboxes, which would outlive their server, and ends the server.
func (s *server) end(t *testing.T, cmd *exec.Cmd) {
	if s.Client != nil {
		list, err := s.Sandboxes(context.Background(), hutch.Filter{Brief: true})
		if err != nil {
			t.Error(err)
		}
		var all sync.WaitGroup
		for _, sb := range list {
			all.Go(func() { s.Destroy(context.Background(), sb.ID, true) })
		}
		all.Wait()
		s.Close()
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

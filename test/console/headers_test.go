package console

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/outside"
)

const (
	// apart is set in the process that runs a test in its own network.
	apart = "HUTCH_TEST_APART"
	// outsideHost is a server at outsideAddress. No interface of this machine has this address, because sandboxes never
	// reach the addresses of its interfaces.
	outsideHost    = "api.example.com"
	outsideAddress = "203.0.113.10"
)

// TestHeaderRules runs the specs of header rules with a host that reports which header it received.
func TestHeaderRules(t *testing.T) {
	if os.Getenv(apart) == "" {
		runApart(t)
		return
	}
	t.Setenv("SSL_CERT_FILE", serveOutside(t)) // the certificate of outsideHost
	t.Setenv("HUTCH_OUTSIDE", outsideHost)
	names := outside.ServeNames(t, func(string) ([]netip.Addr, bool) { return []netip.Addr{netip.MustParseAddr(outsideAddress)}, true })
	url := serve(t, "native", "--destroy-on-exit", "--dns", names)
	playwright(t, url, "headers", "--grep", "from inside")
}

// runApart runs a test in another process, in a network namespace of its own where outsideAddress leads to the loopback interface.
func runApart(t *testing.T) {
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "a network namespace needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = `ip link set lo up && ip route add local ` + outsideAddress + ` dev lo && exec "$@"`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", self, "-test.v", "-test.run=^"+t.Name()+"$", "-test.timeout="+(patience+time.Minute).String())
	cmd.Env = append(os.Environ(), apart+"=1")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		t.Errorf("in a network of its own: %v", err)
	}
}

// serveOutside starts the server of outsideHost, and returns the file with its certificate. An answer contains the
// SHA-256 of the request's Authorization header; the header itself would be masked.
func serveOutside(t *testing.T) string {
	l, err := net.Listen("tcp", outsideAddress+":443")
	if err != nil {
		t.Fatal(err)
	}
	cert, authority := outside.Certify(t, outsideHost)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%x", sha256.Sum256([]byte(r.Header.Get("Authorization"))))
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	file := filepath.Join(hutchtest.Dir(t), "outside.pem")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

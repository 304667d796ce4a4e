package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
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

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"hutch/internal/hutchtest"
)

const (
	// apart is set in the process that runs a test in a network of its own.
	apart = "HUTCH_TEST_APART"
	// outsideHost is a server at outsideAddress, which is no address of this machine's interfaces: sandboxes never reach those.
	outsideHost    = "api.example.com"
	outsideAddress = "203.0.113.10"
)

// TestHeaderRules runs the specs of header rules with a host that says which header it got.
func TestHeaderRules(t *testing.T) {
	if os.Getenv(apart) == "" {
		runApart(t)
		return
	}
	t.Setenv("SSL_CERT_FILE", serveOutside(t)) // of the server
	t.Setenv("HUTCH_OUTSIDE", outsideHost)
	url := serve(t, "native", "--destroy-on-exit", "--dns", serveNames(t))
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

// serveOutside starts the server of outsideHost, and returns the file with its certificate. An answer has the SHA-256 of the header
// Authorization, because values in answers are masked.
func serveOutside(t *testing.T) string {
	l, err := net.Listen("tcp", outsideAddress+":443")
	if err != nil {
		t.Fatal(err)
	}
	cert := certify(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%x", sha256.Sum256([]byte(r.Header.Get("Authorization"))))
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	file := filepath.Join(hutchtest.Dir(t), "outside.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// certify makes a certificate for outsideHost, which is its own authority.
func certify(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{outsideHost}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveNames starts a DNS server that resolves every name to outsideAddress, and returns its address.
func serveNames(t *testing.T) string {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		question := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			conn.WriteTo(resolve(question[:n]), from)
		}
	}()
	return conn.LocalAddr().String()
}

// resolve answers a DNS message; with nothing if it is not valid.
func resolve(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.Additionals = true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		body := &dnsmessage.AResource{A: netip.MustParseAddr(outsideAddress).As4()}
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 5}, Body: body}}
	}
	answer, _ := m.Pack()
	return answer
}

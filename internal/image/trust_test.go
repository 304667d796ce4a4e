package image

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"
)

// newAuthority returns the self-signed certificate of an authority, and a server for localhost with a certificate of
// that authority.
func newAuthority(t *testing.T) (certificate []byte, srv *httptest.Server) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: true, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "trusted") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), srv
}

// TestAuthorityIsTrusted makes programs of the host read the files that they would read in the image.
func TestAuthorityIsTrusted(t *testing.T) {
	t.Parallel()
	authority, srv := newAuthority(t)
	url := strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)
	opt := hostOptions()
	opt.Authority = authority
	dir := t.TempDir()
	root, err := Host(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	bundle := root.Getenv("SSL_CERT_FILE")
	text, err := os.ReadFile(resolved(t, root, bundle))
	if err != nil || !bytes.HasSuffix(text, authority) || bytes.Count(text, []byte("BEGIN")) < 2 {
		t.Errorf("%s does not have the authority behind the host's: %v", bundle, err)
	}
	if host, err := os.ReadFile(bundle); err != nil || bytes.Contains(host, authority) {
		t.Errorf("the host trusts it: %v", err)
	}
	var env []string
	for _, kv := range root.Env {
		name, path, _ := strings.Cut(kv, "=")
		if real, ok := root.Resolve(path); ok && strings.Contains(path, "/certs/") {
			env = append(env, name+"="+real)
		}
	}
	for _, command := range [][]string{
		{"curl", "-sS", "--cacert", resolved(t, root, bundle), url},
		{"python3", "-c", "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())", url},
		{"node", "-e", "fetch(process.argv[1]).then(r => r.text()).then(console.log)", url},
	} {
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("there is no %s", command[0])
			continue
		}
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "trusted" {
			t.Errorf("%s: %v\n%s", command[0], err, out)
		}
	}
}

const fetch = `public class Fetch { public static void main(String[] a) throws Exception {
	System.out.println(new String(new java.net.URL(a[0]).openStream().readAllBytes())); } }`

// TestJavaTrustsTheAuthority: Java's trust store has the authority, and also those of the host.
func TestJavaTrustsTheAuthority(t *testing.T) {
	t.Parallel()
	authority, srv := newAuthority(t)
	s := &skeleton{Root: Root{Dir: filepath.Join(tree(t, "root/opt/jdk/"), "root"), Binds: []Bind{
		{tree(t, "lib/jvm/debian/lib/security/cacerts -> /etc/ssl/certs/java/cacerts", "lib/jvm/other/lib/security/cacerts", "lib/jvm/dead/lib/security/cacerts -> /usr/none"), "/usr"},
		{tree(t, "lib/security/cacerts"), "/opt/jdk"},
	}}, place: "/place"}
	if err := s.trust(authority); err != nil {
		t.Fatal(err)
	}
	var over []string
	for _, b := range s.Binds[2:] {
		if b.Source != "/place/cacerts" {
			t.Errorf("%v", b)
		}
		over = append(over, b.Target)
	}
	if got := strings.Join(over, " "); got != "/usr/lib/jvm/other/lib/security/cacerts /opt/jdk/lib/security/cacerts" {
		t.Errorf("laid over are %s", got)
	}
	store := filepath.Join(s.Dir, "etc/ssl/certs/java/cacerts")
	text, err := os.ReadFile(store)
	if err != nil {
		t.Fatal(err)
	}
	if certs, err := pkcs12.DecodeTrustStore(text, ""); err != nil || len(certs) != 1 {
		t.Errorf("it holds %d, %v", len(certs), err)
	}
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("there is no Java to read it")
	}
	source := filepath.Join(t.TempDir(), "Fetch.java")
	if err := os.WriteFile(source, []byte(fetch), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("java", "-Djavax.net.ssl.trustStore="+store, source, strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "trusted" {
		t.Errorf("%v\n%s", err, out)
	}
}

package listen_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"hutch/internal/listen"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// authority signs certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	return a
}

// sign returns a certificate in PEM.
func (a *authority) sign(t testing.TB, serial int64, public any, names ...string) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, public, a.key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// write puts a fresh certificate and key into files, with the given time.
func (a *authority) write(t testing.TB, dir string, serial int64, at time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalECPrivateKey(k)
	must(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(cert, a.sign(t, serial, k.Public(), "hutch.test"), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
	for _, file := range []string{cert, key} {
		must(t, os.Chtimes(file, at, at))
	}
	return cert, key
}

// serve answers over TLS with the name of the protocol.
func serve(t testing.TB, c *tls.Config) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	srv := &http.Server{TLSConfig: c, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })}
	go srv.ServeTLS(l, "", "")
	t.Cleanup(func() { srv.Close() })
	return l.Addr().String()
}

// serial returns the serial number of the certificate that a server shows.
func serial(t testing.TB, addr string, pool *x509.CertPool) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "hutch.test", RootCAs: pool})
	must(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestFiles(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	began := time.Now()
	cert, key := a.write(t, dir, 7, began)
	c, err := listen.Files(cert, key, slog.New(slog.DiscardHandler))
	must(t, err)
	addr := serve(t, c)
	if got := serial(t, addr, a.pool()); got != 7 {
		t.Errorf("certificate %d", got)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{ServerName: "hutch.test", RootCAs: a.pool()}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + addr)
	must(t, err)
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "HTTP/2.0" {
		t.Errorf("answered over %s", b)
	}
	if conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "hutch.test", RootCAs: a.pool(), MaxVersion: tls.VersionTLS11}); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	// A broken pair of files is not used; a complete pair is.
	must(t, os.WriteFile(key, []byte("half a k"), 0o600))
	for range 3 {
		if got := serial(t, addr, a.pool()); got != 7 {
			t.Errorf("certificate %d", got)
		}
	}
	a.write(t, dir, 8, began.Add(time.Minute))
	for end := time.Now().Add(10 * time.Second); serial(t, addr, a.pool()) != 8; {
		if time.Now().After(end) {
			t.Fatal("the new certificate is not taken")
		}
	}
	if _, err := listen.Files(cert, filepath.Join(dir, "none"), slog.Default()); err == nil {
		t.Error("a missing key is no error")
	}
}

// TestAuto gets a certificate from the test's own ACME server, which verifies the domain as a real server does. After
// that it gets the certificate from the folder only.
func TestAuto(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	ca := &acmeServer{t: t, authority: a}
	srv := httptest.NewServer(ca)
	defer srv.Close()
	ca.url = srv.URL
	folder := t.TempDir()
	ca.target = serve(t, listen.Auto("hutch.test", folder, srv.URL+"/directory"))
	if got := serial(t, ca.target, a.pool()); got != 99 {
		t.Errorf("certificate %d", got)
	}
	if !ca.checked.Load() {
		t.Error("the domain was not checked")
	}
	again := serve(t, listen.Auto("hutch.test", folder, "http://127.0.0.1:1/nobody"))
	if got := serial(t, again, a.pool()); got != 99 {
		t.Errorf("certificate %d after a restart", got)
	}
	if conn, err := tls.Dial("tcp", ca.target, &tls.Config{ServerName: "other.test", RootCAs: a.pool()}); err == nil {
		conn.Close()
		t.Error("a certificate for another name")
	}
}

// acmeServer implements as much of RFC 8555 as one order needs. It does not check signatures.
type acmeServer struct {
	*authority
	t       *testing.T
	url     string
	target  string // the address of the domain
	checked atomic.Bool
	cert    []byte
}

func (s *acmeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Replay-Nonce", fmt.Sprint(time.Now().UnixNano()))
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	status := "pending"
	if s.checked.Load() {
		status = "valid"
	}
	id := map[string]string{"type": "dns", "value": "hutch.test"}
	challenge := map[string]any{"type": "tls-alpn-01", "url": s.url + "/challenge", "token": "the-token", "status": status}
	order := map[string]any{"status": "pending", "identifiers": []any{id}, "authorizations": []string{s.url + "/authz"}, "finalize": s.url + "/finalize"}
	switch r.URL.Path {
	case "/directory":
		answer(200, map[string]string{"newNonce": s.url + "/nonce", "newAccount": s.url + "/account", "newOrder": s.url + "/order", "revokeCert": s.url + "/x", "keyChange": s.url + "/x"})
	case "/nonce":
	case "/account":
		w.Header().Set("Location", s.url+"/account/1")
		answer(201, map[string]string{"status": "valid"})
	case "/order":
		w.Header().Set("Location", s.url+"/order/1")
		answer(201, order)
	case "/order/1":
		if order["status"] = "ready"; s.cert != nil {
			order["status"], order["certificate"] = "valid", s.url+"/cert"
		}
		answer(200, order)
	case "/authz":
		answer(200, map[string]any{"status": status, "identifier": id, "challenges": []any{challenge}})
	case "/challenge":
		s.check()
		answer(200, challenge)
	case "/finalize":
		s.cert = s.sign(s.t, 99, s.request(r), "hutch.test")
		order["status"], order["certificate"] = "valid", s.url+"/cert"
		w.Header().Set("Location", s.url+"/order/1")
		answer(200, order)
	case "/cert":
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		w.Write(s.cert)
	default:
		http.NotFound(w, r)
	}
}

// check connects to where the domain leads, as RFC 8737 has it.
func (s *acmeServer) check() {
	conn, err := tls.Dial("tcp", s.target, &tls.Config{ServerName: "hutch.test", NextProtos: []string{"acme-tls/1"}, InsecureSkipVerify: true})
	if err != nil {
		s.t.Errorf("the check: %v", err)
		return
	}
	defer conn.Close()
	acmeIdentifier := []byte{1, 3, 6, 1, 5, 5, 7, 1, 31}
	for _, e := range conn.ConnectionState().PeerCertificates[0].Extensions {
		var dotted []byte
		for _, n := range e.Id {
			dotted = append(dotted, byte(n))
		}
		if bytes.Equal(dotted, acmeIdentifier) && e.Critical {
			s.checked.Store(true)
		}
	}
}

// request returns the public key in the request that finalizes an order.
func (s *acmeServer) request(r *http.Request) any {
	var jws, payload struct{ Payload, CSR string }
	body, _ := io.ReadAll(r.Body)
	json.Unmarshal(body, &jws)
	text, _ := base64.RawURLEncoding.DecodeString(jws.Payload)
	json.Unmarshal(text, &payload)
	der, _ := base64.RawURLEncoding.DecodeString(payload.CSR)
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		s.t.Errorf("the request: %v", err)
		return nil
	}
	return csr.PublicKey
}

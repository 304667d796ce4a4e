// Package listen makes listeners: with a limit on connections, or for a single existing connection; their protocols;
// and TLS, with files that are read again when they change, with certificates from an ACME server, or with our own.
package listen

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

// Protocols returns HTTP/1.1 and HTTP/2. HTTP/2 also works without TLS, for clients that know beforehand that the
// server speaks it, such as those of gRPC.
func Protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

// base returns the part that all our configurations share.
func base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
}

// Files returns a TLS configuration with a certificate chain and its key, in PEM. Changed files are read again; if that
// fails, the old certificate stays in use.
func Files(cert, key string, log *slog.Logger) (*tls.Config, error) {
	p := &pair{cert: cert, key: key, log: log}
	if err := p.load(); err != nil {
		return nil, err
	}
	c := base()
	c.GetCertificate = p.certificate
	return c, nil
}

// pair is a certificate from files.
type pair struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	now     *tls.Certificate
	written [2]time.Time // modification times of the files, when now was read from them
	looked  time.Time
}

// lookEvery is how often the files are checked, while clients connect.
const lookEvery = time.Second

func (p *pair) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.looked) < lookEvery {
		return p.now, nil
	}
	p.looked = time.Now()
	if written, err := p.times(); err == nil && written == p.written {
		return p.now, nil
	}
	if err := p.load(); err != nil {
		p.log.Warn("the certificate's files changed and cannot be used: the earlier ones stay", "err", err)
	}
	return p.now, nil
}

func (p *pair) load() error {
	written, err := p.times()
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	c, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("read the certificate %s and its key %s: %w", p.cert, p.key, err)
	}
	p.now, p.written = &c, written
	return nil
}

func (p *pair) times() (t [2]time.Time, err error) {
	for i, file := range []string{p.cert, p.key} {
		info, err := os.Stat(file)
		if err != nil {
			return t, err
		}
		t[i] = info.ModTime()
	}
	return t, nil
}

// Own returns a TLS configuration with certificates that sign makes for a domain and the names below it.
func Own(domain string, sign func(names ...string) (*tls.Certificate, error)) *tls.Config {
	c := base()
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return sign(domain, "*."+domain) }
	return c
}

// Auto returns a TLS configuration with certificates for a domain from the ACME server with the URL directory; empty is
// Let's Encrypt. The certificates are kept in a folder. The ACME server verifies the domain by a connection to port 443,
// which must lead here (TLS-ALPN-01).
func Auto(domain, folder, directory string) *tls.Config {
	m := &autocert.Manager{Prompt: autocert.AcceptTOS, HostPolicy: autocert.HostWhitelist(domain), Cache: autocert.DirCache(folder)}
	if directory != "" {
		m.Client = &acme.Client{DirectoryURL: directory}
	}
	c := base()
	c.GetCertificate = m.GetCertificate
	c.NextProtos = append(c.NextProtos, acme.ALPNProto)
	return c
}

package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/spf13/pflag"

	"hutch/internal/listen"
)

// defaultConnections leaves an ordinary limit of open files room for the
// sandboxes' own.
const defaultConnections = 4096

// tlsConfig says how a server speaks TLS, if it does.
type tlsConfig struct {
	cert, key string
	domain    string
	directory string
}

func (c *tlsConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.cert, "tls-cert", "", "speak TLS with the certificate (and chain) in this PEM file, read again when it changes")
	f.StringVar(&c.key, "tls-key", "", "PEM file with the key of the certificate in --tls-cert")
	f.StringVar(&c.domain, "tls-auto", "", "speak TLS with certificates for this domain from Let's Encrypt; port 443 of it must come out here")
	f.StringVar(&c.directory, "acme-directory", "", "directory URL of the ACME server to use for --tls-auto, instead of Let's Encrypt")
}

func (c tlsConfig) check() error {
	switch {
	case (c.cert == "") != (c.key == ""):
		return usageError{errors.New("give both --tls-cert and --tls-key")}
	case c.cert != "" && c.domain != "":
		return usageError{errors.New("give --tls-cert or --tls-auto, not both")}
	case c.directory != "" && c.domain == "":
		return usageError{errors.New("--acme-directory is for --tls-auto")}
	}
	return nil
}

func (s *server) openTLS(context.Context) (err error) {
	switch {
	case s.secure.cert != "":
		s.tls, err = listen.Files(s.secure.cert, s.secure.key, s.log)
	case s.secure.domain != "":
		s.tls = listen.Auto(s.secure.domain, filepath.Join(s.dir, "certificates"), s.secure.directory)
		s.hosts = append(s.hosts, s.secure.domain)
	}
	return err
}

// url is where the server answers, as this machine sees it: one that listens on
// all addresses, on loopback.
func (s *server) url() string {
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if s.secure.domain != "" {
		host = s.secure.domain
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

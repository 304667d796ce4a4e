package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/pflag"

	"hutch/internal/daemon"
)

func tlsFlags(f *pflag.FlagSet, c *daemon.TLS) {
	f.StringVar(&c.Cert, "tls-cert", "", "speak TLS with the certificate (and chain) in this PEM file, read again when it changes")
	f.StringVar(&c.Key, "tls-key", "", "PEM file with the key of the certificate in --tls-cert")
	f.StringVar(&c.Domain, "tls-auto", "", "speak TLS with certificates for this domain from Let's Encrypt; port 443 of it must come out here")
	f.StringVar(&c.Own, "tls-own", "", "speak TLS with certificates for this domain, and the names below it, from an authority of this server, which clients trust: see hutch authority own")
	f.StringVar(&c.Directory, "acme-directory", "", "directory URL of the ACME server to use for --tls-auto, instead of Let's Encrypt")
}

func checkTLS(c daemon.TLS) error {
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return usageError{errors.New("give both --tls-cert and --tls-key")}
	case c.Cert != "" && c.Domain != "":
		return usageError{errors.New("give --tls-cert or --tls-auto, not both")}
	case c.Own != "" && (c.Cert != "" || c.Domain != ""):
		return usageError{errors.New("give --tls-own, or --tls-cert, or --tls-auto, not two of them")}
	case c.Own != "" && !domainName.MatchString(c.Own):
		return usageError{fmt.Errorf("--tls-own: %q is not a domain: give a name in lower case such as hutch.example.com, or localhost", c.Own)}
	case c.Directory != "" && c.Domain == "":
		return usageError{errors.New("--acme-directory is for --tls-auto: give that, too")}
	}
	return nil
}

var domainName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

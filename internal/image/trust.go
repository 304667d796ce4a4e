package image

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"software.sslmate.com/src/go-pkcs12"
)

// bundles are where systems keep the authorities that they trust, in one file.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",   // Red Hat
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/ssl/cert.pem",
}

// machineBundle returns the authorities that this machine trusts; "" if it has no bundle.
func machineBundle() string {
	for _, path := range bundles {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() <= mostBundle {
			if text, err := os.ReadFile(path); err == nil {
				return string(text)
			}
		}
	}
	return ""
}

// bundleVariables make programs with their own authorities use a bundle.
var bundleVariables = []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE"}

const (
	authorityFile = "/etc/ssl/certs/hutch-sandbox.pem"
	cacerts       = "cacerts" // next to the skeleton: Java's trust store
)

// trust adds an authority to those of the host, for all programs: to the system's bundle, which most programs read, to
// Java's, and to the extra authorities of Node.js. Variables make programs with their own authorities use the bundle.
func (s *skeleton) trust(authority []byte) error {
	if len(authority) == 0 {
		return nil
	}
	if err := s.mkdirAll(filepath.Dir(authorityFile)); err != nil {
		return err
	}
	if err := s.write(authorityFile, string(authority)); err != nil {
		return err
	}
	bundle, err := s.addToBundles(authority)
	if err != nil {
		return err
	}
	s.Env = append(s.Env, "NODE_EXTRA_CA_CERTS="+authorityFile)
	for _, name := range bundleVariables {
		s.Env = append(s.Env, name+"="+bundle)
	}
	text, err := os.ReadFile(s.onHost(bundle))
	if err != nil {
		return err
	}
	return s.trustInJava(text)
}

// addToBundles returns the path of the system's bundle. A host without a bundle gets one with only this authority.
func (s *skeleton) addToBundles(authority []byte) (string, error) {
	var done []string
	for _, path := range bundles {
		inside, ok := s.follow(path)
		if !ok || slices.Contains(done, inside) || s.onHost(inside) != filepath.Join(s.Dir, inside) {
			continue
		}
		text, err := os.ReadFile(s.onHost(inside))
		if err != nil {
			return "", err
		}
		if err := s.write(inside, strings.TrimRight(string(text), "\n")+"\n"+string(authority)); err != nil {
			return "", err
		}
		done = append(done, inside)
	}
	if len(done) > 0 {
		return done[0], nil
	}
	return bundles[0], s.write(bundles[0], string(authority))
}

// trustInJava makes a store with everything in the bundle, and shows it where the image's Java environments look for
// one.
func (s *skeleton) trustInJava(bundle []byte) error {
	stores := s.javaStores()
	if len(stores) == 0 {
		return nil
	}
	store, err := pkcs12.Passwordless.EncodeTrustStore(certificates(bundle), "")
	if err != nil {
		return err
	}
	if err := s.write("../"+cacerts, string(store)); err != nil {
		return err
	}
	for _, path := range stores {
		if s.onHost(path) != filepath.Join(s.Dir, path) {
			s.Binds = append(s.Binds, Bind{Source: filepath.Join(s.place, cacerts), Target: path})
			continue
		}
		if err := s.mkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		if err := s.write(path, string(store)); err != nil {
			return err
		}
	}
	return nil
}

// javaStores returns the files inside, free of links, that Java environments read.
func (s *skeleton) javaStores() (list []string) {
	for _, shown := range s.Binds {
		for _, pattern := range []string{"lib/jvm/*/lib/security", "lib/jvm/*/jre/lib/security", "lib/security", "jre/lib/security"} {
			found, _ := filepath.Glob(filepath.Join(shown.Source, pattern, cacerts)) // our own pattern is valid
			for _, file := range found {
				path, ok := s.storeOf(file, filepath.Join(shown.Target, strings.TrimPrefix(file, shown.Source)))
				if ok && !slices.Contains(list, path) {
					list = append(list, path)
				}
			}
		}
	}
	return list
}

// storeOf returns the path at which to write a trust store. Java reads the store at path inside; on the host it is
// file. The path can be a link to a store in /etc that the host does not have: on Debian another package makes it.
func (s *skeleton) storeOf(file, path string) (string, bool) {
	if inside, ok := s.follow(path); ok {
		return inside, true
	}
	target, err := os.Readlink(file)
	return target, err == nil && filepath.IsAbs(target) && s.onHost(target) == filepath.Join(s.Dir, target)
}

// certificates returns the readable certificates in PEM.
func certificates(text []byte) (list []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			list = append(list, cert)
		}
	}
	return list
}

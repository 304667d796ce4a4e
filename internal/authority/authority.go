// Package authority signs certificates with a key that belongs to one installation: for the brokered hosts that its
// sandboxes see, and for the server's own names.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/durable"
)

// Purpose says what an authority signs for.
type Purpose struct {
	Name string // in its certificate
	// Domain, when set, limits the certificates to this name and all names below it. Trusting the authority then does
	// not affect other hosts.
	Domain string
}

// Sandboxes is the purpose of the authority that sandboxes trust: it signs for any brokered host.
var Sandboxes = Purpose{Name: "Hutch sandbox authority"}

// Own returns the purpose of an authority for the server's own names.
func Own(domain string) Purpose { return Purpose{Name: "Hutch server authority", Domain: domain} }

// Authority signs certificates. It signs only for names, never for addresses, and its certificates cannot sign others.
type Authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	leafKey *ecdsa.PrivateKey // key of all leaf certificates; it is only in memory

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	maxLeaves     = 256 // certificates in the cache
	skew          = time.Hour
)

// Open reads the authority in a file, key and certificate, or creates it if the file is missing.
func Open(path string, p Purpose) (*Authority, error) {
	a, err := load(path, p)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(path, p, durable.Create); err == nil || errors.Is(err, fs.ErrExist) {
			a, err = load(path, p)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the certificate authority in %s: %w", path, err)
	}
	return a, nil
}

// Rotate replaces the authority in a file by a new one. Certificates of the old authority stay trusted only by clients
// that trust the old authority.
func Rotate(path string, p Purpose) (*Authority, error) {
	if err := create(path, p, durable.Replace); err != nil {
		return nil, fmt.Errorf("make a certificate authority in %s: %w", path, err)
	}
	return Open(path, p)
}

func load(path string, p Purpose) (*Authority, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, errors.Join(err, hutch.Errorf(hutch.Denied, "others than its owner may read it, and could pass for the hosts that it signs for: `chmod 600` it or, if somebody may have, remove it to have another made"))
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "it holds no key and certificate: put it back or, to have another made, remove it").Because(err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA || time.Now().After(pair.Leaf.NotAfter) {
		return nil, hutch.Errorf(hutch.Invalid, "its certificate is none of a valid authority: remove it to have another made")
	}
	if p.Domain != "" && !slices.Equal(pair.Leaf.PermittedDNSDomains, []string{p.Domain}) {
		return nil, hutch.Errorf(hutch.Conflict, "it is for %s: remove it to have one for %s made, which clients must then trust", strings.Join(pair.Leaf.PermittedDNSDomains, ", "), p.Domain)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &Authority{cert: pair.Leaf, key: key, leafKey: leafKey, leaves: map[string]*tls.Certificate{}}, err
}

// create creates an authority and stores it with put.
func create(path string, p Purpose, put func(path string, content []byte) error) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: p.Name + " " + rand.Text()[:8]},
		NotBefore:    time.Now().Add(-skew), NotAfter: time.Now().Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: true, // RFC 5280 requires this
		ExcludedIPRanges:            []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}},
	}
	if p.Domain != "" {
		template.PermittedDNSDomains = []string{p.Domain}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return put(path, append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...))
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader does not fail
	return n
}

// Certificate returns the certificate to trust, as PEM.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Fingerprint returns the SHA-256 of the certificate, as other programs show it.
func (a *Authority) Fingerprint() string { return fmt.Sprintf("%X", sha256.Sum256(a.cert.Raw)) }

// Ends returns when the certificate expires.
func (a *Authority) Ends() time.Time { return a.cert.NotAfter }

// Leaf returns a certificate for names, and creates it at the first request.
func (a *Authority) Leaf(names ...string) (*tls.Certificate, error) {
	all := strings.Join(names, " ")
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[all]; c != nil && time.Until(c.Leaf.NotAfter) > leafLife/2 && time.Since(c.Leaf.NotBefore) > skew/2 {
		return c, nil // NotBefore is checked because the clock may have been ahead at the signing
	}
	c, err := a.sign(names)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %s: %w", all, err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[all] = c
	return c, nil
}

func (a *Authority) sign(names []string) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: serial(), DNSNames: names,
		NotBefore: time.Now().Add(-skew), NotAfter: time.Now().Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leafKey, Leaf: leaf}, err
}

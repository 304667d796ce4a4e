package authority_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"hutch"
	"hutch/internal/authority"
)

func TestAuthority(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "authority.pem")
	a, err := authority.Open(path, authority.Sandboxes)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if bytes.Contains(a.Certificate(), []byte("PRIVATE")) {
		t.Error("the key is stored with the certificate")
	}
	if b, err := authority.Open(path, authority.Sandboxes); err != nil || !bytes.Equal(a.Certificate(), b.Certificate()) {
		t.Errorf("it is another one when it is opened again: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Open(path, authority.Sandboxes); !errors.Is(err, hutch.Denied) {
		t.Errorf("a key that others may read: %v", err)
	}
	if err := os.WriteFile(path, a.Certificate(), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Chmod(path, 0o600)
	if _, err := authority.Open(path, authority.Sandboxes); !errors.Is(err, hutch.Invalid) {
		t.Errorf("a key that is gone: %v", err)
	}
}

// Trusting one authority does not mean trusting another.
func TestAnotherAuthority(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "authority.pem")
	var all [2]*authority.Authority
	for i := range all {
		a, err := authority.Rotate(path, authority.Sandboxes)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = a
	}
	if b, err := authority.Open(path, authority.Sandboxes); err != nil || b.Fingerprint() != all[1].Fingerprint() || b.Fingerprint() == all[0].Fingerprint() {
		t.Errorf("after it was replaced: %v", err)
	}
	for i, a := range all {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(a.Certificate())
		for j, signer := range all {
			cert, err := signer.Leaf("api.example.com")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: "api.example.com"}); (err == nil) != (i == j) {
				t.Errorf("what %d signed, to who trusts %d: %v", j, i, err)
			}
		}
	}
}

// A client rejects what an authority for one domain signs for another domain.
func TestOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "authority.pem")
	a, err := authority.Open(path, authority.Own("hutch.test"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(a.Certificate())
	for name, believed := range map[string]bool{"hutch.test": true, "8000-box.hutch.test": true, "hutch.test.example.com": false, "example.com": false} {
		cert, err := a.Leaf(name, "*."+name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: trusted}); (err == nil) != believed {
			t.Errorf("%s: %v; believed should be %v", name, err, believed)
		}
	}
	if _, err := authority.Open(path, authority.Own("other.test")); !errors.Is(err, hutch.Conflict) {
		t.Errorf("for another domain: %v", err)
	}
}

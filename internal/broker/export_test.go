package broker

import (
	"crypto/tls"
	"testing"
)

// Leaf is for tests that play a real host.
func (a *Authority) Leaf(t *testing.T, host string) *tls.Certificate {
	t.Helper()
	cert, err := a.leaf(host)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

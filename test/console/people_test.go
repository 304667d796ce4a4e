package console

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/issuer"
)

// TestPeople signs people in with an issuer, in a browser.
func TestPeople(t *testing.T) {
	at := issuer.New(t)
	secret := filepath.Join(hutchtest.Dir(t), "client-secret")
	if err := os.WriteFile(secret, []byte(issuer.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	at.Redirect = "http://hutch.localhost:" + port + "/console/oidc/callback"
	at.Scope = "openid profile hutch:read hutch:exec hutch:files"
	t.Setenv("HUTCH_ISSUER", at.URL)
	url := serve(t, "native", "--destroy-on-exit", "--listen", "127.0.0.1:"+port, "--oidc-issuer", at.URL, "--oidc-audience", "http://hutch.localhost:"+port+"/mcp",
		"--oidc-client-id", issuer.Client, "--oidc-client-secret-file", secret, "--oidc-name", "Example <b>ID</b>")
	playwright(t, url, "people")
	if at.Ends.Load() == 0 {
		t.Error("no user signed out of the issuer")
	}
}

// freeAddress returns an address where nothing listens.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

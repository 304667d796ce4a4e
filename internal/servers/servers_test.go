package servers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"hutch"
)

func TestSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hutch", "servers.json")
	l, err := Load(path)
	if err != nil || len(l.Servers) != 0 {
		t.Fatalf("a missing file gives %v, %v", l, err)
	}
	l.Put(Server{Name: "a", URL: "https://a.example", Token: "of a"})
	l.Put(Server{Name: "b", URL: "http://127.0.0.1:7700", Token: "of b"})
	l.Put(Server{Name: "a", URL: "https://a.example:8443", Token: "newer"})
	if err := l.Save(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	l, err = Load(path)
	if s, ok := l.Named("a"); err != nil || !ok || s.Token != "newer" || l.Current != "a" || len(l.Servers) != 2 {
		t.Errorf("it has %+v, %v", l, err)
	}
	if !l.Remove("a") || l.Remove("a") || l.Current != "" {
		t.Errorf("after the removal: %+v", l)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, hutch.Denied) {
		t.Errorf("a file that others can read gives %v", err)
	}
}

// A saved token is found for its own URL and for no other.
func TestTokenOfAnotherURL(t *testing.T) {
	t.Parallel()
	l := List{Servers: []Server{{Name: "a", URL: "https://a.example/hutch", Token: "secret"}}}
	for text, want := range map[string]bool{
		"https://a.example/hutch": true, "https://A.example:443/hutch/": true,
		"http://a.example/hutch": false, "https://a.example": false, "https://a.example:444/hutch": false,
		"https://a.example.evil.example/hutch": false, "https://b.example/hutch": false,
	} {
		u, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := l.At(u); got != want {
			t.Errorf("%s: found is %v", text, got)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "nonsense", "127.0.0.1:7810", "hutch.example.com", "ftp://x", "http://", "http://user@x", "http://x?y"} {
		if u, err := Parse(text); err == nil {
			t.Errorf("%q is taken as %v", text, u)
		}
	}
}

package conversation

import (
	"net/url"
	"testing"
	"time"
)

// BenchmarkSign signs and checks one link.
func BenchmarkSign(b *testing.B) {
	l := links{secret: []byte("0123456789abcdef0123456789abcdef"), base: "https://code.example.com", life: time.Hour}
	for b.Loop() {
		u, err := url.Parse(l.to("conversation", "folder/file with a name.csv"))
		if err != nil {
			b.Fatal(err)
		}
		if err := l.check("conversation", "folder/file with a name.csv", u.Query(), time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestExpiryIsNoPath signs a path whose end looks like an expiry.
func TestExpiryIsNoPath(t *testing.T) {
	t.Parallel()
	l := links{secret: []byte("s")}
	for _, name := range []string{"f99", "f\x0099", "f?exp=99", "f?99"} {
		if name != "f\x0099" && l.sign("c", name, "") == l.sign("c", "f", "99") {
			t.Errorf("%q is signed as f until 99", name)
		}
	}
}

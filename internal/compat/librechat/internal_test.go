package librechat

import (
	"path/filepath"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"hutch"
)

// FuzzExecution: files of an execution that is accepted stay below the working folder, and have ids.
func FuzzExecution(f *testing.F) {
	for _, seed := range []string{
		`{"code":"x","lang":"py","args":["a"],"files":[{"id":"AAAAAAAAAAAAAAAAAAAAA","session_id":"AAAAAAAAAAAAAAAAAAAAA","name":"a/b.txt"}]}`,
		`{"code":"x","lang":"CPP","files":[{"id":"AAAAAAAAAAAAAAAAAAAAA","storage_session_id":"AAAAAAAAAAAAAAAAAAAAA","name":"..","kind":"skill","resource_id":"s","version":3}],"runtime_session_hint":"h"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := decode(body)
		if err != nil {
			return
		}
		for _, in := range e.Files {
			owner, err := in.owner()
			st := storeOf(Person{}, owner)
			if !filepath.IsLocal(in.Name) || hutch.CheckPath(in.Name) != nil || !isID(in.ID) || err != nil || hutch.CheckID(st.sandbox) != nil || !filepath.IsLocal(st.session(in.session())) {
				t.Errorf("%s: %+v", body, in)
			}
		}
		if e.Hint != "" && hutch.CheckID(conversationOf(Person{}, e.Hint)) != nil {
			t.Errorf("%s: the hint %q", body, e.Hint)
		}
	})
}

// FuzzToken: no random text is accepted as a token, and no text makes the verifier panic.
func FuzzToken(f *testing.F) {
	v, err := NewVerifier(VerifierOptions{Key: "a secret of some length, 32 bytes at least"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJsaWJyZWNoYXQifQ.")
	f.Add("eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJsaWJyZWNoYXQifQ.AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		v.claims(token)
		if who, err := v.Verify(token); err == nil {
			t.Errorf("%q is a token of %+v", token, who)
		}
	})
}

// TestKeys: a text that is not a key for verifying tokens is refused.
func TestKeys(t *testing.T) {
	t.Parallel()
	const bare = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
	for _, text := range []string{
		"", "short", "{}", "\ufeff{}", bare, bare[:30] + "\n" + bare[30:], "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBm/RAlphM3+hUG6wWfcO5bIUIaqMLa2ywxcOK1wMWbh ada@host", // public keys, which cannot be secrets
		"https://librechat.example.com/.well-known/jwks.json", `[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE"}]`,
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", `{"keys":[]}`, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", `{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}`,
	} {
		if _, err := NewVerifier(VerifierOptions{Key: text}); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, before := range []string{"", "\ufeff", "Bag Attributes\n    friendlyName: librechat\n"} {
		v, err := NewVerifier(VerifierOptions{Key: before + "-----BEGIN PUBLIC KEY-----\n" + bare + "\n-----END PUBLIC KEY-----"})
		if err != nil || len(v.keys) != 1 || v.keys[0].algorithm != jose.EdDSA {
			t.Errorf("a key after %q: %+v, %v", before, v, err)
		}
	}
}

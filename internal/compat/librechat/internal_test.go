package librechat

import (
	"path/filepath"
	"testing"

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

// FuzzToken: no text is a token, and none breaks the verifier.
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

// TestKeys: what cannot verify tokens is refused.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", "{}", `{"keys":[]}`, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", `{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}`} {
		if _, err := NewVerifier(VerifierOptions{Key: text}); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
	const ed = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----"
	if _, err := NewVerifier(VerifierOptions{Key: ed}); err != nil {
		t.Error(err)
	}
}

package secret_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// Reading the secrets of many owners does not rebuild the redactors for each of them.
func TestOpenSharedOfMany(t *testing.T) {
	const owners = 3000
	s, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Collection("secrets").Change(t.Context(), func(d *store.Draft) error {
		for i := range owners {
			d.Put(fmt.Sprint("owner/", i), fmt.Appendf(nil, `{"version":1,"secrets":[{"owner":"%d","name":"KEY","value":"very-secret-value-%d"}]}`, i, i))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	v, err := secret.OpenShared(t.Context(), s.Collection("secrets"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Minute { // it takes far less than a second; with quadratic work it would take minutes
		t.Errorf("it takes %v", took)
	}
	one := caller.WithOwner(t.Context(), caller.Owner{ID: "7"})
	if got := v.Redactor(one).String("a very-secret-value-7 b"); strings.Contains(got, "secret-value") {
		t.Errorf("what was stored is shown: %q", got)
	}
}

// A secret that is set on one server can be used and is redacted on the other; deleted on one, it is gone from both.
func TestServersShareSecrets(t *testing.T) {
	url := pgtest.New(t)
	vault := func(node string) *secret.Vault {
		s, err := store.Connect(t.Context(), store.Options{URL: url, Node: node, Key: make([]byte, store.KeySize)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		v, err := secret.OpenShared(t.Context(), s.Collection("secrets"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a, b := vault("a"), vault("b")
	wait := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	one := caller.WithOwner(t.Context(), caller.Owner{ID: "one"})
	if _, err := a.SetSecret(one, "KEY", hutch.SecretRequest{Value: "very-secret-value"}); err != nil {
		t.Fatal(err)
	}
	wait("the other server does not know the secret", func() bool { v, _ := b.Value("one", "KEY"); return v == "very-secret-value" })
	if got := b.Redactor(one).String("a very-secret-value b"); got == "a very-secret-value b" {
		t.Errorf("the other server shows %q", got)
	}
	if _, err := b.Value("two", "KEY"); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("another owner gets it: %v", err)
	}
	// Both servers set another secret at once: neither is lost.
	done := make(chan error, 2)
	for v, name := range map[*secret.Vault]string{a: "FROM_A", b: "FROM_B"} {
		go func() {
			_, err := v.SetSecret(context.WithoutCancel(one), name, hutch.SecretRequest{Value: "value of " + name})
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, v := range []*secret.Vault{a, b} {
		wait("a secret is lost", func() bool { list, _ := v.Secrets(one); return len(list) == 3 })
	}
	if err := b.DeleteSecret(one, "KEY"); err != nil {
		t.Fatal(err)
	}
	wait("a deleted secret is still lent", func() bool { _, err := a.Value("one", "KEY"); return hutch.KindOf(err) == hutch.NotFound })
	if got := a.Redactor(one).String("a very-secret-value b"); got == "a very-secret-value b" {
		t.Errorf("what programs still hold is shown: %q", got)
	}
}

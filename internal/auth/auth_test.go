package auth_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/caller"
	"hutch/internal/store"
)

func open(t testing.TB, opt auth.Options) *auth.Registry {
	t.Helper()
	r, err := auth.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func create(t testing.TB, r *auth.Registry, req hutch.TokenRequest) hutch.MintedToken {
	t.Helper()
	minted, err := r.CreateToken(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return minted
}

func wantKind(t testing.TB, kind hutch.Kind, err error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v; want %s", err, kind)
	}
}

func TestLifeOfAToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hutch.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, auth.Options{Collection: db.Collection("tokens"), Local: "mine"})
	ci := create(t, r, hutch.TokenRequest{Name: "ci", Scopes: []hutch.Scope{"exec", "read", "exec"}, Limits: hutch.TokenLimits{Requests: 7, Sandboxes: hutch.Unlimited}})
	if len(ci.Secret) < 50 || !strings.HasPrefix(ci.Secret, auth.Prefix) {
		t.Errorf("the token is %q", ci.Secret)
	}
	other := create(t, r, hutch.TokenRequest{Name: "other"})

	// Everything that matters is stored, except secrets.
	docs, err := db.Collection("tokens").All(t.Context())
	if err != nil || len(docs) != 2 {
		t.Fatal(docs, err)
	}
	for _, doc := range docs {
		if strings.Contains(string(doc), ci.Secret[len(auth.Prefix):]) {
			t.Errorf("the secret is kept: %s", doc)
		}
	}
	r = open(t, auth.Options{Collection: db.Collection("tokens"), Local: "mine"})
	who, err := r.Check(t.Context(), ci.Secret)
	if err != nil {
		t.Fatal(err)
	}
	wantLimits := hutch.TokenLimits{Requests: 7, Operations: 1000, Sandboxes: hutch.Unlimited}
	if who.ID != ci.ID || who.Owner != ci.ID || who.Name != "ci" || who.Limits != wantLimits || !slices.Equal(who.Scopes, []hutch.Scope{"read", "exec"}) {
		t.Errorf("%+v", who)
	}
	if got, err := r.Token(t.Context(), "ci"); err != nil || got.LastUsedAt == nil || got.Limits != wantLimits {
		t.Errorf("%+v, %v", got, err)
	}

	again, err := r.RotateToken(t.Context(), "ci")
	if err != nil || again.ID != ci.ID {
		t.Fatal(again, err)
	}
	_, err = r.Check(t.Context(), ci.Secret)
	wantKind(t, hutch.Denied, err)
	if _, err := r.Check(t.Context(), again.Secret); err != nil {
		t.Error(err)
	}
	for range 2 {
		if gone, err := r.RevokeToken(t.Context(), ci.ID); err != nil || gone.RevokedAt == nil {
			t.Errorf("%+v, %v", gone, err)
		}
	}
	r = open(t, auth.Options{Collection: db.Collection("tokens")})
	for _, secret := range []string{ci.Secret, again.Secret, "mine", "", "hutch_", other.Secret + " ", strings.ToUpper(other.Secret)} {
		_, err := r.Check(t.Context(), secret)
		wantKind(t, hutch.Denied, err)
	}
	if _, err := r.Check(t.Context(), other.Secret); err != nil {
		t.Error(err)
	}
	_, err = r.RotateToken(t.Context(), ci.ID)
	wantKind(t, hutch.Conflict, err)
	// The name is free again, and now means the new token.
	second := create(t, r, hutch.TokenRequest{Name: "ci"})
	if got, err := r.Token(t.Context(), "ci"); err != nil || got.ID != second.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRefusedRequests(t *testing.T) {
	r := open(t, auth.Options{Local: "mine"})
	create(t, r, hutch.TokenRequest{Name: "taken"})
	for name, req := range map[string]hutch.TokenRequest{
		"no name":   {},
		"odd name":  {Name: "A b"},
		"odd scope": {Name: "x", Scopes: []hutch.Scope{"root"}},
		"odd limit": {Name: "x", Limits: hutch.TokenLimits{Operations: -2}},
		"past":      {Name: "x", Lifetime: -1},
		"too far":   {Name: "x", Lifetime: 1e18},
	} {
		if _, err := r.CreateToken(t.Context(), req); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"taken", "local"} {
		_, err := r.CreateToken(t.Context(), hutch.TokenRequest{Name: name})
		wantKind(t, hutch.Conflict, err)
	}
	_, err := r.RevokeToken(t.Context(), "nobody")
	wantKind(t, hutch.NotFound, err)
	_, err = r.RevokeToken(t.Context(), "local")
	wantKind(t, hutch.Unsupported, err)
}

func TestLimitsOfTheLocalToken(t *testing.T) {
	for _, c := range []struct {
		free      bool
		set, want hutch.TokenLimits
	}{
		{true, hutch.TokenLimits{}, caller.Unlimited},
		{true, hutch.TokenLimits{Requests: 5}, hutch.TokenLimits{Requests: 5, Operations: -1, Sandboxes: -1}},
		{false, hutch.TokenLimits{}, auth.Defaults()},
		{false, hutch.TokenLimits{Requests: -1}, hutch.TokenLimits{Requests: -1, Operations: 1000, Sandboxes: 10}},
	} {
		r := open(t, auth.Options{Local: "mine", LocalLimits: c.set, LocalFree: c.free})
		who, err := r.Check(t.Context(), "mine")
		if err != nil || who.Owner != "" || !slices.Equal(who.Scopes, hutch.Scopes) || who.Limits != c.want {
			t.Errorf("%+v, %v", who, err)
		}
	}
	if list, err := open(t, auth.Options{Local: "mine"}).Tokens(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// When a token ends, its contexts end too, with a cause that says why.
func TestWhatRunsEndsWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, auth.Options{})
		hold := func(req hutch.TokenRequest) (context.Context, context.CancelFunc) {
			who, err := r.Check(t.Context(), create(t, r, req).Secret)
			if err != nil {
				t.Fatal(err)
			}
			return who.Hold(t.Context())
		}
		stays, release := hold(hutch.TokenRequest{Name: "stays"})
		defer release()
		for _, end := range []func(string) error{
			func(name string) error { _, err := r.RevokeToken(t.Context(), name); return err },
			func(name string) error { _, err := r.RotateToken(t.Context(), name); return err },
			func(string) error { time.Sleep(time.Hour); return nil },
		} {
			name := hutch.NewID("x")
			ctx, release := hold(hutch.TokenRequest{Name: name, Lifetime: 3600})
			defer release()
			if err := end(name); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			wantKind(t, hutch.Denied, context.Cause(ctx))
		}
		if stays.Err() != nil {
			t.Error("another token's ended too")
		}
		secret := create(t, r, hutch.TokenRequest{Name: "short", Lifetime: 1}).Secret
		time.Sleep(time.Second)
		_, err := r.Check(t.Context(), secret)
		wantKind(t, hutch.Denied, err)
	})
}

// A revoked, an expired and a forged token are refused in the same words.
func TestRefusalsAreAlike(t *testing.T) {
	r := open(t, auth.Options{})
	revoked := create(t, r, hutch.TokenRequest{Name: "revoked"})
	if _, err := r.RevokeToken(t.Context(), "revoked"); err != nil {
		t.Fatal(err)
	}
	_, a := r.Check(t.Context(), revoked.Secret)
	_, b := r.Check(t.Context(), "forged")
	if a == nil || b == nil || a.Error() != b.Error() {
		t.Errorf("%v; %v", a, b)
	}
}

// If several callers create a token with the same name at once, exactly one succeeds. Other callers check tokens
// meanwhile.
func TestRaces(t *testing.T) {
	db, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := open(t, auth.Options{Collection: db.Collection("tokens")})
	secret := create(t, r, hutch.TokenRequest{Name: "used"}).Secret
	var wg sync.WaitGroup
	made := make(chan string, 64)
	for range 64 {
		wg.Go(func() {
			if m, err := r.CreateToken(t.Context(), hutch.TokenRequest{Name: "one"}); err == nil {
				made <- m.ID
			}
			r.Check(t.Context(), secret)
			r.Tokens(t.Context())
		})
	}
	wg.Wait()
	if len(made) != 1 {
		t.Errorf("%d tokens of one name", len(made))
	}
}

func BenchmarkCheck(b *testing.B) {
	r := open(b, auth.Options{})
	for range 1000 {
		create(b, r, hutch.TokenRequest{Name: hutch.NewID("x")})
	}
	secret := create(b, r, hutch.TokenRequest{Name: "mine"}).Secret
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Check(b.Context(), secret); err != nil {
			b.Fatal(err)
		}
	}
}

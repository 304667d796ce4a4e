package auth_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/store"
)

// A server starts while another one makes tokens. The race detector checks this.
func TestOpenWhileOthersChange(t *testing.T) {
	url := pgtest.New(t)
	registry := func(node string) *auth.Registry {
		s, err := store.Connect(t.Context(), store.Options{URL: url, Node: node, Key: make([]byte, store.KeySize)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return open(t, auth.Options{Collection: s.Collection("tokens")})
	}
	r := registry("a")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := r.CreateToken(ctx, hutch.TokenRequest{Name: fmt.Sprint("t", i)}); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for i := range 10 {
		registry(fmt.Sprint("b", i))
		if _, err := r.CreateToken(t.Context(), hutch.TokenRequest{Name: fmt.Sprint("u", i)}); err != nil {
			t.Error(err) // the other server may be notified of this token meanwhile
		}
	}
	cancel()
	wg.Wait()
}

// A token that is unknown here may have been made by another server. Without the store, this server cannot know.
func TestRevokeWithoutStore(t *testing.T) {
	s, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, auth.Options{Collection: s.Collection("tokens")})
	s.Close()
	if _, err := r.RevokeToken(t.Context(), "of-another"); err == nil || hutch.KindOf(err) == hutch.NotFound {
		t.Errorf("it says %v", err)
	}
}

package engine_test

import (
	"fmt"
	"testing"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/exposure"
)

func withPreviews(opt *engine.Options) {
	opt.PreviewURL = func(label string) string { return "http://" + label + ".localhost" }
}

// expose makes a sandbox of an owner, and exposes its port 8000.
func (b *bench) expose(t *testing.T, owner, id, token string) (string, error) {
	t.Helper()
	if _, err := b.Create(as(t, owner), hutch.CreateRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	p, err := b.Expose(as(t, owner), id, hutch.ExposeRequest{Port: 8000, Token: token})
	return p.URL, err
}

// TestLabelsAreNotHandedOn: the URL of a removed preview is never given to another owner, however the owner requests
// it, also after a restart. Its own owner can get it again.
func TestLabelsAreNotHandedOn(t *testing.T) {
	b := start(t, withPreviews)
	gone := map[string]func(){
		"destroyed": func() { b.Destroy(as(t, "ada"), "team-destroyed", true) },
		"unexposed": func() { b.Unexpose(as(t, "ada"), "team-unexposed", 8000) },
		"exchanged": func() {
			b.Expose(as(t, "ada"), "team-exchanged", hutch.ExposeRequest{Port: 8000, Token: "other"})
		},
		"kept": func() {},
	}
	for name, end := range gone {
		if _, err := b.expose(t, "ada", "team-"+name, "live"); err != nil {
			t.Fatal(err)
		}
		end()
	}
	for range 2 {
		words := map[string]bool{}
		for name := range gone {
			for id, token := range map[string]string{"team-" + name: "live", "team": name + "-live"} {
				if _, err := b.expose(t, "bob", id, token); hutch.KindOf(err) != hutch.Conflict {
					t.Errorf("%s: bob's %s with the token %s: %v", name, id, token, err)
				} else {
					words[err.Error()] = true
				}
			}
		}
		if len(words) != 1 {
			t.Errorf("the refusals tell labels apart: %v", words)
		}
		b.end(t)
		b.boot(t)
	}
	if url, err := b.expose(t, "ada", "team-destroyed", "live"); err != nil || url != "http://8000-team-destroyed-live.localhost" {
		t.Errorf("their own owner has it again: %s, %v", url, err)
	}
}

// TestReservedLabelsAreBounded: an owner cannot fill the store with labels, and only labels of the same owner are
// released for new ones.
func TestReservedLabelsAreBounded(t *testing.T) {
	b := start(t, withPreviews)
	if _, err := b.expose(t, "ada", "first", "live"); err != nil {
		t.Fatal(err)
	}
	b.Destroy(as(t, "ada"), "first", true)
	b.expose(t, "bob", "many", "")
	for i := range exposure.MaxReserved + 10 {
		if _, err := b.Expose(as(t, "bob"), "many", hutch.ExposeRequest{Port: 8000, Token: fmt.Sprint("t", i)}); err != nil {
			t.Fatal(err)
		}
	}
	docs, err := b.store.Collection("labels").All(t.Context())
	if err != nil || len(docs) != exposure.MaxReserved+1 {
		t.Errorf("%d labels are kept, %v", len(docs), err)
	}
	if _, err := b.expose(t, "bob", "first", "live"); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("ada's label after bob's many: %v", err)
	}
}

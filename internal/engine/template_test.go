package engine_test

import (
	"testing"

	"hutch"
	"hutch/internal/engine"
)

// A create call with the id of an existing sandbox returns that sandbox, even if its snapshot was deleted or is on
// another node.
func TestExistingSandboxNeedsNoSnapshot(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "origin"})
	if _, err := b.Snapshot(t.Context(), "origin", hutch.SnapshotRequest{Name: "base"}); err != nil {
		t.Fatal(err)
	}
	b.create(t, hutch.CreateRequest{ID: "copy", Snapshot: "base"})
	if err := b.DeleteSnapshot(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	for _, req := range []hutch.CreateRequest{{ID: "copy", Snapshot: "base"}, {ID: "Copy", NormalizeID: true, Template: "base"}} {
		if sb, err := b.Create(t.Context(), req); err != nil || sb.ID != "copy" || sb.Snapshot == "" {
			t.Errorf("%+v: %+v %v", req, sb, err)
		}
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "other", Snapshot: "base"}); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("a new sandbox: %v", err)
	}
}

// A template for all owners cannot be made from a sandbox that has requested secrets.
func TestSharedTemplateWithoutSecrets(t *testing.T) {
	b := start(t, func(o *engine.Options) {
		o.Secret = func(_, _ string) (string, error) { return "a secret value", nil }
	})
	b.create(t, hutch.CreateRequest{ID: "lent", Secrets: []string{"KEY"}})
	b.create(t, hutch.CreateRequest{ID: "plain"})
	if _, err := b.Snapshot(t.Context(), "lent", hutch.SnapshotRequest{Name: "before"}); err != nil {
		t.Fatal(err)
	}
	for _, req := range []hutch.TemplateRequest{{From: "lent"}, {Snapshot: "before"}} {
		req.Name, req.Shared = "all", true
		if v, err := b.CreateTemplate(t.Context(), req); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%+v: %+v, %v", req, v, err)
		}
	}
	if list, err := b.Snapshots(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("there are %+v, %v", list, err)
	}
	if _, err := b.CreateTemplate(t.Context(), hutch.TemplateRequest{Name: "mine", From: "lent"}); err != nil {
		t.Error(err)
	}
	if _, err := b.CreateTemplate(t.Context(), hutch.TemplateRequest{Name: "all", From: "plain", Shared: true}); err != nil {
		t.Error(err)
	}
}

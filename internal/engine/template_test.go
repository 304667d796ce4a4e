package engine_test

import (
	"testing"

	"hutch"
	"hutch/internal/engine"
)

// A template that is shared with all owners cannot be made from a sandbox that has requested secrets.
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

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest/pgtest"
)

// If a node's data folder is lost, the node starts with an empty one. Its sandboxes are listed as failed, with the
// reason.
func TestNodeWithoutItsFolder(t *testing.T) {
	t.Parallel()
	server := installation(t, pgtest.New(t))
	cfg := server()
	cfg.Node = "node-a"
	_, svc, end := start(t, cfg)
	for _, id := range []string{"awake", "asleep"} {
		if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := svc.Hibernate(t.Context(), "asleep", hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	end()
	again := server()
	again.Node, again.Secrets = cfg.Node, cfg.Secrets
	_, svc, _ = start(t, again)
	list, err := svc.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, sb := range list {
		if sb.Status != hutch.Failed || sb.Reason != "it did not survive while the server was down" {
			t.Errorf("%s is %s: %s", sb.ID, sb.Status, sb.Reason)
		}
	}
}

// ChangeStore changes the URL of the database in a node's identity, and nothing else. ExistingKey finds the key of a
// node that joined in its identity.
func TestStoreOfANode(t *testing.T) {
	dir := t.TempDir()
	if err := ChangeStore(dir, "postgres://new/x"); err != nil {
		t.Errorf("a folder without an identity: %v", err)
	}
	id := &fleet.Identity{Node: "a", Certificate: "c", Key: "k", Authority: "au", Store: "postgres://old/x", SecretsKey: installation(t, "")().Secrets.Key}
	path := filepath.Join(dir, "node.json")
	if err := id.Write(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "store.json"), []byte(`{"installation":"in-1","node":"a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ChangeStore(dir, "postgres://new/x"); err != nil {
		t.Fatal(err)
	}
	got, err := fleet.ReadIdentity(path)
	if id.Store = "postgres://new/x"; err != nil || *got != *id {
		t.Errorf("%+v, %v", got, err)
	}
	member, url, shares, err := SharedStore(dir)
	if err != nil || !shares || url != id.Store || member.Installation != "in-1" {
		t.Errorf("%+v %q %v %v", member, url, shares, err)
	}
	if _, err := ExistingKey(dir, Secrets{}); err != nil {
		t.Errorf("the key of a node that joined: %v", err)
	}
	if _, err := ExistingKey(t.TempDir(), Secrets{}); err == nil || !strings.Contains(err.Error(), "--secret-key") {
		t.Errorf("no key: %v", err)
	}
}

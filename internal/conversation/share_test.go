package conversation_test

import (
	"errors"
	"net/http"
	"testing"

	"hutch"
	"hutch/internal/conversation"
	"hutch/internal/hutchtest"
)

// TestConversationsOfAnOwnerAreBounded: one owner neither fills the disk with many conversations nor affects
// another's, and deleting makes room.
func TestConversationsOfAnOwnerAreBounded(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{Most: 2, Room: 3 << 20})
	base := serve(t, s)
	try := func(id, code, owner string) error {
		ctx := hutch.WithOwner(t.Context(), hutch.Owner{ID: owner})
		_, err := s.Run(ctx, conversation.Request{ConversationID: id, Language: "bash", Code: code}, nil)
		return err
	}
	if err := errors.Join(try("a", "head -c 2M /dev/zero > f", ""), try("b", "true", "")); err != nil {
		t.Fatal(err)
	}
	if err := try("c", "true", ""); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("a third conversation: %v", err)
	}
	if err := try("b", "head -c 2M /dev/zero > f", ""); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("4 MiB in all: %v", err)
	}
	if err := try("a", "head -c 2M /dev/zero > f", "bob"); err != nil {
		t.Errorf("another owner: %v", err)
	}
	// The totals of an owner are known after a restart, too.
	s2, _ := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{Most: 2, Room: 3 << 20, Folder: folder})
	if _, err := s2.Run(t.Context(), conversation.Request{ConversationID: "c", Language: "bash", Code: "true"}, nil); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("a third conversation, after a restart: %v", err)
	}
	for range 2 {
		req, _ := http.NewRequest(http.MethodDelete, base+"/conversations/a", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusNoContent {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
	}
	if err := try("c", "head -c 2M /dev/zero > f", ""); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
}

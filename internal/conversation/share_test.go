package conversation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/conversation"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/fakeengine"
)

// TestConversationsOfAnOwnerAreBounded: one owner neither fills the disk with many conversations nor affects
// another's, and deleting makes room.
func TestConversationsOfAnOwnerAreBounded(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{Most: 2, Room: 3 << 20})
	base := serve(t, s)
	try := func(id, code, owner string) error {
		ctx := caller.WithOwner(t.Context(), caller.Owner{ID: owner})
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

// TestEntriesAreCharged: files without content, folders and links take space on the server's disk, too.
func TestEntriesAreCharged(t *testing.T) {
	t.Parallel()
	engine := hutchtest.Engine(t, "native", nil)
	s, folder := open(t, engine, conversation.Options{Room: 1 << 20})
	run := func(s *conversation.Server, id, code string) error {
		_, err := s.Run(t.Context(), conversation.Request{ConversationID: id, Language: "bash", Code: code}, nil)
		return err
	}
	for name, code := range map[string]string{"files": ": > $i", "folders": "mkdir $i", "links": "ln -s x $i"} {
		if err := run(s, name, "for i in {1..300}; do "+code+"; done"); !errors.Is(err, hutch.Exhausted) {
			t.Errorf("300 %s: %v", name, err)
		}
	}
	if err := run(s, "files", "rm -r *; for i in {1..150}; do : > $i; done"); err != nil {
		t.Errorf("150 files: %v", err)
	}
	s, _ = open(t, engine, conversation.Options{Room: 1 << 20, Folder: folder})
	if err := run(s, "more", "for i in {1..150}; do : > $i; done"); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("150 more, after a restart: %v", err)
	}
}

func TestListOfConversations(t *testing.T) {
	t.Parallel()
	s, _ := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{})
	base := serve(t, s)
	for _, c := range []struct{ id, owner string }{{"b", ""}, {"a", ""}, {"a", "bob"}} {
		ctx := caller.WithOwner(t.Context(), caller.Owner{ID: c.owner})
		if _, err := s.Run(ctx, conversation.Request{ConversationID: c.id, Language: "bash", Code: "head -c 1000 /dev/zero > f"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	list := func(query string) (l conversation.List) {
		t.Helper()
		resp, err := http.Get(base + "/conversations" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&l); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", query, resp.Status, err)
		}
		return l
	}
	own := list("").Conversations
	if len(own) != 2 || own[0].Name != "a" || own[1].Name != "b" || own[0].Bytes != 1000 || own[0].Modified.IsZero() || own[0].Owner != "" {
		t.Errorf("own: %+v", own)
	}
	all := list("?all=true").Conversations
	if len(all) != 3 || all[0].Name != "a" || all[1].Name != "a" || all[0].Owner == all[1].Owner {
		t.Errorf("all: %+v", all)
	}
	if rest := list("?after=a").Conversations; len(rest) != 1 || rest[0].Name != "b" {
		t.Errorf("after a: %+v", rest)
	}
	if resp, err := http.Get(base + "/conversations?all=maybe"); err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("all=maybe: %v, %v", resp.Status, err)
	}
}

// surfaceOf notes through which surface sandboxes are destroyed, as the audit log does.
type surfaceOf struct {
	hutch.Service
	surface string
}

func (s *surfaceOf) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	s.surface = caller.From(ctx).Origin.Surface
	return s.Service.Destroy(ctx, id, force)
}

// TestDeleteNamesItsSurface: the record of a destroyed sandbox says that it was destroyed with its conversation.
func TestDeleteNamesItsSurface(t *testing.T) {
	t.Parallel()
	svc := &surfaceOf{Service: fakeengine.Start(t)}
	s, _ := open(t, svc, conversation.Options{})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, serve(t, s)+"/conversations/a", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusNoContent || svc.surface != "conversation" {
		t.Fatalf("%v, %v, by the surface %q", resp, err, svc.surface)
	}
	resp.Body.Close()
}

// TestHugeSparseFiles: the sizes of sparse files, which take no space inside, do not add up to a negative number. A
// negative number would give the owner unlimited room.
func TestHugeSparseFiles(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{Room: 3 << 20})
	run := func(id, code string) error {
		_, err := s.Run(t.Context(), conversation.Request{ConversationID: id, Language: "bash", Code: code}, nil)
		return err
	}
	if err := run("huge", "head -c 1M /dev/zero > 0; truncate -s 2305843009213693952 f1 f2 f3 f4 && stat f4"); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("four files of 2 EiB each: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "huge", "files", "0")); err == nil {
		t.Error("a file of the refused run was kept")
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := run(id, "head -c 2M /dev/zero > f"); (id == "a") != (err == nil) {
			t.Errorf("2 MiB in %s: %v", id, err)
		}
	}
}

// growing is a service in which each file grows between the time it is listed and the time it is copied.
type growing struct{ hutch.Service }

func (s growing) ReadFile(ctx context.Context, sandbox string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	if _, err := s.Service.WriteFile(ctx, sandbox, hutch.WriteRequest{Path: req.Path, Append: true}, bytes.NewReader(make([]byte, 4<<20))); err != nil {
		return hutch.FileInfo{}, err
	}
	return s.Service.ReadFile(ctx, sandbox, req, w)
}

// TestFilesThatGrowWhileKept: no more of a file is kept than its owner was charged for.
func TestFilesThatGrowWhileKept(t *testing.T) {
	t.Parallel()
	s, folder := open(t, growing{hutchtest.Engine(t, "native", nil)}, conversation.Options{Room: 1 << 20})
	res := run(t, s, "a", "printf abc > f; : > empty")
	if names := fileNames(res.Files); !slices.Contains(names, "f") || !slices.Contains(names, "empty") {
		t.Errorf("kept: %q", names)
	}
	found := 0
	filepath.WalkDir(folder, func(name string, e fs.DirEntry, _ error) error {
		if text, err := os.ReadFile(name); err == nil && filepath.Base(name) == "f" {
			if found++; string(text) != "abc" {
				t.Errorf("%d bytes of the file are kept", len(text))
			}
		}
		return nil
	})
	if found != 1 {
		t.Errorf("%d files are kept", found)
	}
}

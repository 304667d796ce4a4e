package oci

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hutch"
)

// An owner's images take no more disk space than the limit, however they were added. Each owner has its own limit, and
// images of the server have none.
func TestRoom(t *testing.T) {
	w := newWorld(t)
	w.open(Options{Limits: Limits{Room: 5 << 20 / 2}})
	for _, name := range []string{"a:1", "b:1", "c:1"} {
		w.push(name, imageOf(t, layerOf(t, "bin/x", noise(1<<20, name))))
	}
	if _, err := w.pull("a:1", PullOptions{Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	a, err := w.store.Inspect("ann", w.ref("a:1"))
	if err == nil {
		_, err = w.store.Root(t.Context(), "ann", a.Digest)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.pull("b:1", PullOptions{Owner: "ann"}); !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "image prune") {
		t.Errorf("over the disk space of the owner: %v", err)
	}
	if files := w.files(partialDir, tempDir); len(files) != 0 {
		t.Errorf("what was refused left %v", files)
	}
	for _, owner := range []string{"bob", ""} {
		if _, err := w.pull("b:1", PullOptions{Owner: owner}); err != nil {
			t.Errorf("%q: %v", owner, err)
		}
	}
	var archive bytes.Buffer
	if err := w.store.Save(t.Context(), &archive, "", w.ref("b:1")); err != nil {
		t.Fatal(err)
	}
	if list, err := w.store.Load(t.Context(), &archive, LoadOptions{Owner: "ann"}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("loaded over the disk space of the owner: %v, %v", list, err)
	}
	if err := w.store.Remove("ann", w.ref("a:1")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pull("c:1", PullOptions{Owner: "ann"}); err != nil {
		t.Errorf("after a removal: %v", err)
	}
}

// Pulls at the same time share the space: each reserves its part before its first layer arrives.
func TestRoomOfPullsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.open(Options{Limits: Limits{Room: 5 << 20 / 2}})
	names := []string{"a:1", "b:1", "c:1", "d:1"}
	for _, name := range names {
		w.push(name, imageOf(t, layerOf(t, "bin/x", noise(1<<20, name))))
	}
	var all sync.WaitGroup
	var fine, full atomic.Int64
	for _, name := range names {
		all.Go(func() {
			switch _, err := w.store.Pull(t.Context(), w.ref(name), PullOptions{Owner: "ann"}); {
			case err == nil:
				fine.Add(1)
			case errors.Is(err, hutch.Exhausted):
				full.Add(1)
			default:
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	if fine.Load() < 1 || fine.Load() > 2 || fine.Load()+full.Load() != 4 {
		t.Errorf("%d pulls fit into the disk space, and %d do not", fine.Load(), full.Load())
	}
	if left := w.store.roomLeft("ann"); left < 0 {
		t.Errorf("%d bytes are left", left)
	}
}

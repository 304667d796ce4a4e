package conversation

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/problem"
)

// accounts track how much the conversations of each owner keep, so that one owner does not fill the disk. An owner's
// total is read at its first use.
type accounts struct {
	mu    sync.Mutex
	bytes map[string]map[string]int64 // by owner, as in names of folders, and by folder
}

// ownerIn returns the owner in the name of a folder; "" for the server's own.
func ownerIn(folder string) string {
	_, owner, _ := strings.Cut(folder, "~")
	return owner
}

// ofLocked returns the bytes of an owner's conversations, by folder.
func (a *accounts) ofLocked(root *os.Root, owner string) (map[string]int64, error) {
	if list := a.bytes[owner]; list != nil {
		return list, nil
	}
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	entries, err := top.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	list := map[string]int64{}
	for _, entry := range entries {
		if entry.IsDir() && ownerIn(entry.Name()) == owner {
			list[entry.Name()] = sizeOf(root, filesOf(entry.Name()))
		}
	}
	if a.bytes == nil {
		a.bytes = map[string]map[string]int64{}
	}
	a.bytes[owner] = list
	return list, nil
}

// sizeOf is how many bytes the files below a folder have.
func sizeOf(root *os.Root, folder string) (n int64) {
	dir, err := root.OpenRoot(folder)
	if err != nil {
		return 0
	}
	defer dir.Close()
	walk(dir, ".", func(name string, _ fs.DirEntry) error {
		if info, err := dir.Lstat(name); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// admit refuses a conversation that would exceed an owner's limits: a new one beyond the number, or any if the total is
// full.
func (s *Server) admit(at place) error {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	list, err := s.accounts.ofLocked(s.root, ownerIn(at.folder()))
	if err != nil {
		return err
	}
	if _, known := list[at.folder()]; known {
		return nil
	}
	if s.most > 0 && len(list) >= s.most {
		return hutch.Errorf(hutch.Exhausted, "there are %d conversations, the limit of one owner: delete some with DELETE /conversations/NAME, or start the server with a higher --conversations-per-token", len(list)).With("limit", "conversations")
	}
	if err := s.roomLocked(list, at, 1); err != nil {
		return err
	}
	list[at.folder()] = 0
	return nil
}

// grow records the size of a conversation, if its owner's limit allows it.
func (s *Server) grow(at place, bytes int64) error {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	list, err := s.accounts.ofLocked(s.root, ownerIn(at.folder()))
	if err != nil {
		return err
	}
	if bytes > list[at.folder()] { // becoming smaller is always allowed
		if err := s.roomLocked(list, at, bytes); err != nil {
			return err
		}
	}
	list[at.folder()] = bytes
	return nil
}

func (s *Server) roomLocked(list map[string]int64, at place, bytes int64) error {
	others := int64(0)
	for folder, n := range list {
		if folder != at.folder() {
			others += n
		}
	}
	if s.room > 0 && others+bytes > s.room {
		return hutch.Errorf(hutch.Exhausted, "the conversations of one owner may keep %d MiB together, and the others keep %d MiB: nothing of this run was kept. Delete files under /data, or conversations with DELETE /conversations/NAME, or start the server with a higher --conversation-room", s.room>>20, others>>20).
			With("limit", "disk of conversations")
	}
	return nil
}

// Remove deletes a conversation with its files and its sandbox. Links to the files stop working. It is idempotent.
func (s *Server) Remove(ctx context.Context, conversation string) error {
	at, err := locate(ctx, conversation)
	if err != nil {
		return err
	}
	if err := s.turns.Take(ctx, at.sandbox()); err != nil {
		return err
	}
	defer s.turns.Put(at.sandbox())
	if _, err := s.svc.Destroy(ctx, at.sandbox(), true); err != nil && !errors.Is(err, hutch.NotFound) {
		return err
	}
	if err := s.root.RemoveAll(at.folder()); err != nil {
		return err
	}
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	delete(s.accounts.bytes[ownerIn(at.folder())], at.folder())
	return nil
}

// remove answers DELETE /conversations/{conversation}.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	if who := caller.From(r.Context()).Principal; who != nil && !who.Has(hutch.ScopeExec) {
		problem.Write(w, who.Lack("delete a conversation", []hutch.Scope{hutch.ScopeExec}))
		return
	}
	if err := s.Remove(caller.WithSurface(r.Context(), "conversation"), r.PathValue("conversation")); err != nil {
		problem.Write(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

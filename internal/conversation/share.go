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

// accounts track how much the conversations of each owner keep, so that one owner does not fill the disk.
type accounts struct {
	mu  sync.Mutex
	all map[string]*account // by owner, as in names of folders
}

// account is the account of one owner. It is read from the disk at the owner's first use. That takes long if there are
// many files, but delays no other owner.
type account struct {
	mu   sync.Mutex
	kept map[string]size // by folder; nil before the first use
}

// size is the size of a conversation.
type size struct {
	bytes   int64 // in files
	entries int64 // files, folders and links
}

// entryCost is what an entry takes on the disk beside the bytes of its file: its inode, and the rest of its last block.
const entryCost = 4 << 10

// charged returns how much of an owner's room a conversation takes, in bytes.
func (z size) charged() int64 { return z.bytes + z.entries*entryCost }

func (a *accounts) of(owner string) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]*account{}
	}
	if a.all[owner] == nil {
		a.all[owner] = &account{}
	}
	return a.all[owner]
}

// ownerIn returns the owner in the name of a folder; "" for the server's own.
func ownerIn(folder string) string {
	_, owner, _ := strings.Cut(folder, "~")
	return owner
}

// readLocked reads the sizes of an owner's conversations.
func (a *account) readLocked(root *os.Root, owner string) error {
	if a.kept != nil {
		return nil
	}
	top, err := root.Open(".")
	if err != nil {
		return err
	}
	defer top.Close()
	entries, err := top.ReadDir(-1)
	if err != nil {
		return err
	}
	a.kept = map[string]size{}
	for _, entry := range entries {
		if entry.IsDir() && ownerIn(entry.Name()) == owner {
			a.kept[entry.Name()] = sizeOf(root, filesOf(entry.Name()))
		}
	}
	return nil
}

// sizeOf returns the size of what is below a folder.
func sizeOf(root *os.Root, folder string) (z size) {
	dir, err := root.OpenRoot(folder)
	if err != nil {
		return z
	}
	defer dir.Close()
	walk(dir, ".", func(name string, _ fs.DirEntry) error {
		z.entries++
		if info, err := dir.Lstat(name); err == nil && info.Mode().IsRegular() {
			z.bytes += info.Size()
		}
		return nil
	})
	return z
}

// admit refuses a conversation that would exceed an owner's limits: a new conversation beyond the allowed number, or
// any conversation if the owner's room is used up.
func (s *Server) admit(at place) error {
	a := s.accounts.of(ownerIn(at.folder()))
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.readLocked(s.root, ownerIn(at.folder())); err != nil {
		return err
	}
	if _, known := a.kept[at.folder()]; known {
		return nil
	}
	if s.most > 0 && len(a.kept) >= s.most {
		return hutch.Errorf(hutch.Exhausted, "there are %d conversations, the limit of one owner: delete some with DELETE /conversations/NAME, or start the server with a higher --conversations-per-token", len(a.kept)).With("limit", "conversations")
	}
	if err := s.roomLocked(a, at, size{entries: 1}); err != nil {
		return err
	}
	a.kept[at.folder()] = size{}
	return nil
}

// grow records the size of a conversation, if its owner's limit allows it.
func (s *Server) grow(at place, z size) error {
	a := s.accounts.of(ownerIn(at.folder()))
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.readLocked(s.root, ownerIn(at.folder())); err != nil {
		return err
	}
	if z.charged() > a.kept[at.folder()].charged() { // becoming smaller is always allowed
		if err := s.roomLocked(a, at, z); err != nil {
			return err
		}
	}
	a.kept[at.folder()] = z
	return nil
}

func (s *Server) roomLocked(a *account, at place, z size) error {
	others := int64(0)
	for folder, other := range a.kept {
		if folder != at.folder() {
			others += other.charged()
		}
	}
	if s.room > 0 && others+z.charged() > s.room {
		return hutch.Errorf(hutch.Exhausted, "the conversations of one owner may keep %d MiB together, with 4 KiB for each file, and the others keep %d MiB: nothing of this run was kept. Delete files under /data, or conversations with DELETE /conversations/NAME, or start the server with a higher --conversation-room", s.room>>20, others>>20).
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
	a := s.accounts.of(ownerIn(at.folder()))
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.kept, at.folder())
	return nil
}

// remove answers DELETE /conversations/{conversation}.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	if who := caller.From(r.Context()).Principal; who != nil && !who.Has(hutch.ScopeExec) {
		problem.Write(w, who.Lack("deleting a conversation", []hutch.Scope{hutch.ScopeExec}))
		return
	}
	if err := s.Remove(caller.WithSurface(r.Context(), "conversation"), r.PathValue("conversation")); err != nil {
		problem.Write(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

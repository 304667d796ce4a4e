package conversation

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/problem"
)

// maxListed is how many conversations one list has at most.
const maxListed = 1000

// Kept describes the stored data of a conversation.
type Kept struct {
	Name string `json:"conversation"`
	// Owner distinguishes the conversations of different owners in a list of all. It is empty for conversations of the
	// server's own token.
	Owner    string    `json:"owner,omitempty"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modifiedAt"`

	folder string
}

// List is one page of conversations, by name.
type List struct {
	Conversations []Kept `json:"conversations"`
	// Next is where the next page begins; empty if this is the last.
	Next string `json:"next,omitempty"`
}

// index answers GET /conversations with the caller's conversations, or with all=true the conversations of every owner,
// for an administrator.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if forPage(r) {
		s.page(w, r)
		return
	}
	q := r.URL.Query()
	all, err := strconv.ParseBool(cmp.Or(q.Get("all"), "false"))
	if err != nil {
		problem.Write(w, hutch.Errorf(hutch.Invalid, "all is %.50q: give true or false", q.Get("all")).Naming(hutch.AboutField, "all"))
		return
	}
	if err := mayList(caller.From(r.Context()).Principal, all); err != nil {
		problem.Write(w, err)
		return
	}
	list, err := s.List(place{owner: ownerOf(r.Context())}.mark(), all, q.Get("after"))
	if err != nil {
		problem.Write(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(list)
}

func mayList(who *caller.Principal, all bool) error {
	switch {
	case who == nil:
		return nil
	case all && !who.Has(hutch.ScopeAdmin):
		return who.Lack("listing the conversations of every owner", []hutch.Scope{hutch.ScopeAdmin})
	case !who.Has(hutch.ScopeRead, hutch.ScopeExec):
		return who.Lack("listing conversations", []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec})
	}
	return nil
}

// List returns conversations whose folder names come after a name: the conversations of the owner with this mark, or
// those of all owners.
func (s *Server) List(owner string, all bool, after string) (List, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return List{}, err
	}
	list := List{Conversations: []Kept{}}
	for _, entry := range entries { // sorted by name
		folder := entry.Name()
		if !entry.IsDir() || folder <= after || !folderNames.MatchString(folder) || !all && ownerIn(folder) != owner {
			continue
		}
		if len(list.Conversations) == maxListed {
			list.Next = list.Conversations[maxListed-1].folder
			break
		}
		list.Conversations = append(list.Conversations, s.kept(folder, all))
	}
	return list, nil
}

func (s *Server) kept(folder string, withOwner bool) Kept {
	name, owner, _ := strings.Cut(folder, "~")
	k := Kept{Name: name, Bytes: s.bytesOf(folder), folder: folder}
	if withOwner {
		k.Owner = owner
	}
	if info, err := s.root.Stat(filesOf(folder)); err == nil {
		k.Modified = info.ModTime().UTC()
	}
	return k
}

// bytesOf returns the size of a conversation: as the accounts know it or, if they do not, the size of its files.
func (s *Server) bytesOf(folder string) int64 {
	a := s.accounts.of(ownerIn(folder))
	a.mu.Lock()
	z, known := a.kept[folder]
	a.mu.Unlock()
	if !known {
		z = sizeOf(s.root, filesOf(folder))
	}
	return z.bytes
}

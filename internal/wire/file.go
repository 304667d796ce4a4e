package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"hutch"
)

// Frames of requests about files.
const (
	TypeData  Type = 'd'
	TypeItems Type = 'i'
)

const (
	// FileChunk is how much of a file one frame has: more than for output, because no reader waits for its first
	// byte, and every frame costs each end a wake-up.
	FileChunk = 512 << 10
	// FileWindow is how many unconfirmed bytes of an archive can be on their way to the agent. One frame has a
	// quarter of it.
	FileWindow = 512 << 10
)

// File is a request about files. Paths and texts are bytes, because they need not be UTF-8. The fields have the same
// meaning as in package hutch for the operation Op; fields that the operation does not have are ignored.
type File struct {
	// User is the user whose rights the request has, and who owns new files, in the same form as Start.User; default:
	// Boot.UID.
	User      string   `json:"user,omitempty"`
	Path      []byte   `json:"path,omitempty"`
	To        []byte   `json:"to,omitempty"` // target of a move or copy
	Names     [][]byte `json:"names,omitempty"`
	Offset    int64    `json:"offset,omitempty"`
	Length    int64    `json:"length,omitempty"`
	FirstLine int      `json:"firstLine,omitempty"`
	LastLine  int      `json:"lastLine,omitempty"`
	Mode      uint32   `json:"mode,omitempty"`
	Append    bool     `json:"append,omitempty"`
	Create    bool     `json:"create,omitempty"`
	Parents   bool     `json:"parents,omitempty"`
	Replace   bool     `json:"replace,omitempty"`
	Recursive bool     `json:"recursive,omitempty"`
	Hidden    bool     `json:"hidden,omitempty"`
	All       bool     `json:"all,omitempty"`
	Depth     int      `json:"depth,omitempty"`
	Limit     int      `json:"limit,omitempty"`
	Glob      []byte   `json:"glob,omitempty"`
	Pattern   []byte   `json:"pattern,omitempty"`
	Old       []byte   `json:"old,omitempty"`
	New       []byte   `json:"new,omitempty"`
	Format    string   `json:"format,omitempty"`

	Attributes     map[string]string `json:"attributes,omitempty"`
	ListAttributes bool              `json:"listAttributes,omitempty"`
}

type fileUser struct{}

// AsUser returns a context whose requests about files are made with the rights of a user: see File.User.
func AsUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, fileUser{}, user)
}

// of returns f as a request of the context's user.
func (f File) of(ctx context.Context) *File {
	f.User, _ = ctx.Value(fileUser{}).(string)
	return &f
}

// Records of files come from the agent: values out of range are refused.

func checkInfo(f hutch.FileInfo) error {
	switch f.Type {
	case hutch.RegularFile, hutch.Directory, hutch.Symlink, hutch.OtherFile:
	default:
		return fmt.Errorf("file of type %.20q", f.Type)
	}
	if f.UID < 0 || f.UID > math.MaxUint32 || f.GID < 0 || f.GID > math.MaxUint32 {
		return fmt.Errorf("file of user %d and group %d", f.UID, f.GID)
	}
	if y := f.Modified.Year(); f.Size < 0 || f.Size > maxCount || y < 0 || y > 9999 {
		return fmt.Errorf("file of %d bytes, from %d", f.Size, y)
	}
	if err := hutch.CheckAttributes(f.Attributes); err != nil {
		return err
	}
	return checkNames(f.Path, f.Name, f.Target)
}

func checkNames(names ...string) error {
	for _, name := range names {
		if len(name) > 64<<10 || strings.Contains(name, "\x00") {
			return fmt.Errorf("a name of %d bytes", len(name))
		}
	}
	return nil
}

func checkMatch(m hutch.Match) error {
	if m.Line < 1 || m.Column < 1 || len(m.Text) > 4<<10 {
		return fmt.Errorf("match of %d bytes at %d:%d", len(m.Text), m.Line, m.Column)
	}
	return checkNames(m.Path)
}

func checkEvent(e hutch.FileEvent) error {
	switch e.Type {
	case hutch.WatchReady, hutch.FileCreated, hutch.FileModified, hutch.FileDeleted, hutch.FileMoved, hutch.Overflow, hutch.WatchEnded:
	default:
		return fmt.Errorf("event of type %.20q", e.Type)
	}
	return checkNames(e.Path, e.From)
}

// items passes the members of an i frame to out, one by one, because each takes many times the memory of its text.
func items[T any](payload []byte, check func(T) error, out func(T) error) error {
	var raw []json.RawMessage
	if len(payload) > maxItems {
		return fmt.Errorf("%d bytes of items", len(payload))
	}
	if err := json.Unmarshal(payload, &raw); err != nil {
		return err
	}
	for _, b := range raw {
		var v T
		if err := json.Unmarshal(b, &v); err != nil {
			return err
		}
		if err := check(v); err != nil {
			return err
		}
		if err := out(v); err != nil {
			return callerError{err}
		}
	}
	return nil
}

// maxItems is the longest i frame, in bytes.
const maxItems = 128 << 10

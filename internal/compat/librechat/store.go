package librechat

import (
	"context"
	"errors"
	"io"
	"mime"
	"path"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/pipe"
)

// A session's folder has two subfolders: one for read-only uploads, and one for all other files.
const (
	writable = "rw"
	readOnly = "ro"
)

// file is a file of a session.
type file struct {
	ID, Name, Session string
	ReadOnly          bool
	Size              int64
	Modified          time.Time
	path              string // in the store
}

// contentType returns the MIME type that belongs to the extension of the name.
func (f file) contentType() string {
	t := mime.TypeByExtension(path.Ext(f.Name))
	if t == "" {
		return "application/octet-stream"
	}
	return t
}

// maxFiles is the highest number of files in a session.
const maxFiles = 1000

var errNoFile = hutch.Errorf(hutch.NotFound, "File not found: it may have expired, or it is in another session")

// files lists the files of a session. If the session does not exist, the error is errNoFile.
func (h *Handler) files(ctx context.Context, st store, session string) ([]file, error) {
	var list []file
	err := h.kept.Look(ctx, st.sandbox, func() error {
		list = nil
		return h.svc.ListFiles(ctx, st.sandbox, hutch.ListRequest{Path: st.session(session), Recursive: true, Hidden: true, Limit: 3 * maxFiles}, func(f hutch.FileInfo) error {
			_, inside, _ := strings.Cut(f.Path, "/"+session+"/")
			kind, name, ok := strings.Cut(inside, "/")
			if f.Type != hutch.RegularFile || !ok || len(list) == maxFiles {
				return nil
			}
			list = append(list, file{
				ID: fileID(session, name), Name: name, Session: session, ReadOnly: kind == readOnly, Size: f.Size, Modified: f.Modified,
				path: path.Join(st.session(session), inside),
			})
			return nil
		})
	})
	if err != nil && hutch.KindOf(err) == hutch.NotFound {
		return nil, errNoFile
	}
	return list, err
}

// file finds one file of a session.
func (h *Handler) file(ctx context.Context, st store, session, id string) (file, error) {
	list, err := h.files(ctx, st, session)
	if err != nil {
		return file{}, err
	}
	for _, f := range list {
		if f.ID == id {
			return f, nil
		}
	}
	return file{}, errNoFile
}

// put writes a file into a session of a store.
func (h *Handler) put(ctx context.Context, st store, session, kind, name string, content io.Reader) error {
	_, err := h.svc.WriteFile(ctx, st.sandbox, hutch.WriteRequest{Path: path.Join(st.session(session), kind, name), Parents: true}, content)
	return err
}

// open makes sure that a store exists.
func (h *Handler) open(ctx context.Context, st store) error {
	req := hutch.CreateRequest{ID: st.sandbox, Network: hutch.Network{Mode: hutch.NetworkNone}, Labels: map[string]string{"librechat": "files"}}
	return h.kept.Use(ctx, req, func() error {
		err := h.svc.Mkdir(ctx, st.sandbox, st.folder, true)
		if err == nil {
			h.prune(ctx, st)
		}
		return err
	})
}

// prune removes expired sessions of a store from time to time. No request depends on it.
func (h *Handler) prune(ctx context.Context, st store) {
	if !h.prunes.Due(compat.Owner(ctx) + " " + st.sandbox + st.folder) {
		return
	}
	var old []string
	err := h.svc.ListFiles(ctx, st.sandbox, hutch.ListRequest{Path: st.folder}, func(f hutch.FileInfo) error {
		if f.Type == hutch.Directory && time.Since(f.Modified) > h.opt.Keep {
			old = append(old, f.Name)
		}
		return nil
	})
	for _, session := range old {
		err = errors.Join(err, h.svc.Delete(ctx, st.sandbox, st.session(session), true))
	}
	if err != nil {
		h.log.Warn("old files are left, or not all of them were found", "sandbox", st.sandbox, "err", err)
	}
}

// copy copies a file from one sandbox to another.
func (h *Handler) copy(ctx context.Context, from, source string, write func(io.Reader) error) error {
	return pipe.Through(func(w io.Writer) error {
		_, err := h.svc.ReadFile(ctx, from, hutch.ReadRequest{Path: source}, w)
		return err
	}, write)
}

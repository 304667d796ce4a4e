package librechat

import (
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/httpio"
)

var errBadID = hutch.Errorf(hutch.Invalid, "Bad request: the ids of sessions and files are 21 letters, digits, - and _")

// at returns the store and the session that a request names.
func at(r *http.Request) (store, string, error) {
	session, id := r.PathValue("session"), r.PathValue("file")
	if !isID(session) || id != "" && !isID(id) {
		return store{}, "", errBadID
	}
	owner, err := namedInQuery(r.URL.Query())
	return storeOf(personOf(r.Context()), owner), session, err
}

// found returns the file that a request names.
func (h *Handler) found(r *http.Request) (store, file, error) {
	st, session, err := at(r)
	if err != nil {
		return st, file{}, err
	}
	f, err := h.file(r.Context(), st, session, r.PathValue("file"))
	return st, f, err
}

// object returns the name of a file in lists: its session, its id and the end of its name.
func (f file) object() string { return f.Session + "/" + f.ID + path.Ext(f.Name) }

// etag changes with the content, as far as size and time show it.
func (f file) etag() string {
	return strconv.FormatInt(f.Modified.UnixNano(), 36) + "-" + strconv.FormatInt(f.Size, 36)
}

// list answers with the files of a session, in one of four levels of detail.
func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	st, session, err := at(r)
	if err != nil {
		return err
	}
	detail := r.URL.Query().Get("detail")
	if !slices.Contains(details, detail) {
		return hutch.Errorf(hutch.Invalid, "detail is %.40q: use simple, summary, full or normalized", detail).Naming(hutch.AboutField, "detail")
	}
	files, err := h.files(r.Context(), st, session)
	if err != nil {
		return err
	}
	list := make([]any, 0, len(files))
	for _, f := range files {
		list = append(list, f.shown(detail))
	}
	return h.answer(w, r, http.StatusOK, list)
}

// details are the values of the parameter detail; a missing value means simple.
var details = []string{"", "simple", "summary", "full", "normalized"}

func (f file) shown(detail string) any {
	v := map[string]any{"name": f.object(), "size": f.Size, "lastModified": f.Modified.UTC().Format(time.RFC3339Nano), "etag": f.etag()}
	switch detail {
	case "summary":
	case "full":
		v["id"], v["session_id"], v["storage_session_id"], v["contentType"], v["versionId"] = f.ID, f.Session, f.Session, f.contentType(), nil
		v["metadata"] = map[string]string{"content-type": f.contentType(), "original-filename": f.Name}
	case "normalized":
		v["id"], v["name"], v["session_id"], v["storage_session_id"], v["contentType"] = f.ID, f.Name, f.Session, f.Session, f.contentType()
	default:
		return f.object()
	}
	return v
}

// metadata describes one file.
func (h *Handler) metadata(w http.ResponseWriter, r *http.Request) error {
	_, f, err := h.found(r)
	if err != nil {
		return err
	}
	return h.answer(w, r, http.StatusOK, map[string]any{
		"name": f.object(), "originalFilename": f.Name, "size": f.Size, "lastModified": f.Modified.UTC().Format(time.RFC3339Nano), "etag": f.etag(),
		"contentType": f.contentType(), "readOnly": f.ReadOnly,
	})
}

func (h *Handler) remove(w http.ResponseWriter, r *http.Request) error {
	st, f, err := h.found(r)
	if err != nil {
		return err
	}
	if err := h.svc.Delete(r.Context(), st.sandbox, f.path, false); err != nil {
		return err
	}
	return h.answer(w, r, http.StatusOK, map[string]string{"message": "File deleted successfully", "session_id": f.Session, "fileId": f.ID})
}

// download sends the bytes of a file. Browsers save it instead of showing it.
func (h *Handler) download(w http.ResponseWriter, r *http.Request) error {
	st, f, err := h.found(r)
	if err != nil {
		return err
	}
	begun := false
	_, err = h.svc.ReadFile(r.Context(), st.sandbox, hutch.ReadRequest{Path: f.path, Opened: func(info hutch.FileInfo) {
		begun = true
		head := w.Header()
		head.Set("Content-Type", f.contentType())
		head.Set("Content-Length", strconv.FormatInt(info.Size, 10))
		head.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(f.Name)}))
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Content-Security-Policy", "sandbox")
		head.Set("Cache-Control", "no-store")
		if f.ReadOnly {
			head.Set("X-Read-Only", "true")
		}
	}}, httpio.NewWriter(w, r, h.opt.Stall))
	if err != nil && begun {
		panic(http.ErrAbortHandler)
	}
	return err
}

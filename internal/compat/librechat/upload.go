package librechat

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/httpio"
)

const (
	maxBatch = 200       // files
	maxFile  = 150 << 20 // bytes, as LibreChat sends at most
	maxField = 4 << 10   // bytes of a field
	maxParts = 2 * maxBatch
)

var (
	errUpload    = hutch.Errorf(hutch.Invalid, "the upload did not arrive whole: send it again")
	errLargeFile = hutch.Errorf(hutch.Invalid, "File size limit exceeded: a file can have %d MiB", maxFile>>20)
)

// uploaded is the result for one file.
type uploaded struct {
	Status   string `json:"status"` // "success" or "error"
	Filename string `json:"filename"`
	FileID   string `json:"fileId,omitempty"`
	Error    string `json:"error,omitempty"`
	err      error
}

// form is an upload while it arrives. The fields that name its owner come before the files.
type form struct {
	h       *Handler
	r       *http.Request
	session string
	fields  map[string]string
	store   store
	opened  bool
	files   []uploaded
	more    bool // there were more files than can be in a batch
}

// upload stores either all files in a new session or none.
func (h *Handler) upload(w http.ResponseWriter, r *http.Request) error {
	f, err := h.receive(w, r)
	if err != nil {
		return err
	}
	if f.more {
		return hutch.Errorf(hutch.Invalid, "an upload has at most %d files: send the rest in another one", maxBatch)
	}
	for _, u := range f.files {
		if u.err != nil {
			return u.err
		}
	}
	type done struct {
		FileID   string `json:"fileId"`
		Filename string `json:"filename"`
	}
	list := []done{}
	for _, u := range f.files {
		list = append(list, done{u.FileID, u.Filename})
	}
	return h.answer(w, r, http.StatusOK, map[string]any{"message": "success", "session_id": f.session, "storage_session_id": f.session, "files": list})
}

// uploadBatch stores files in a new session, and returns the result of each.
func (h *Handler) uploadBatch(w http.ResponseWriter, r *http.Request) error {
	f, err := h.receive(w, r)
	if err != nil {
		return err
	}
	failed := 0
	for _, u := range f.files {
		if u.err != nil {
			failed++
		}
	}
	message, status := "success", http.StatusOK
	switch failed {
	case 0:
	case len(f.files):
		message, status = "error", http.StatusBadRequest
	default:
		message = "partial_success"
	}
	answer := map[string]any{"message": message, "session_id": f.session, "storage_session_id": f.session, "files": f.files, "succeeded": len(f.files) - failed, "failed": failed}
	if f.more {
		answer["filesLimitReached"], answer["maxFiles"] = true, maxBatch
	}
	return h.answer(w, r, status, answer)
}

// receive reads all parts of an upload.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (*form, error) {
	r.Body = httpio.NewBody(w, r, h.opt.Stall)
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "Invalid content type. Must be multipart/form-data.")
	}
	f := &form{h: h, r: r, session: newSession(), fields: map[string]string{}}
	for range maxParts {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			if len(f.files) == 0 {
				return nil, hutch.Errorf(hutch.Invalid, "No files provided")
			}
			return f, nil
		}
		if err == nil {
			err = f.take(part)
		}
		if _, ours := errors.AsType[*hutch.Error](err); err != nil && !ours {
			err = errUpload.Because(err)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, hutch.Errorf(hutch.Invalid, "an upload has at most %d parts", maxParts)
}

// ownerFields are the fields that name the owner of an upload, and how it is kept.
var ownerFields = []string{"kind", "id", "version", "entity_id", "read_only"}

func (f *form) take(part *multipart.Part) error {
	_, disposition, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return errUpload
	}
	name, isFile := disposition["filename"]
	if isFile {
		return f.takeFile(part, name)
	}
	field := disposition["name"]
	if !slices.Contains(ownerFields, field) {
		return hutch.Errorf(hutch.Invalid, "this server does not have the field %.200q of an upload: leave it out", field).Naming(hutch.AboutField, field)
	}
	value, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil || len(value) > maxField {
		return errUpload
	}
	if f.opened {
		return hutch.Errorf(hutch.Invalid, "the field %s comes after a file: send it before the files", field)
	}
	f.fields[field] = string(value)
	return nil
}

// takeFile stores a file. The error applies to the whole upload.
func (f *form) takeFile(part *multipart.Part, name string) error {
	if len(f.files) == maxBatch {
		f.more = true
		return nil
	}
	if err := f.open(); err != nil {
		return err
	}
	u := uploaded{Status: "success", Filename: strings.Clone(name[:min(len(name), maxName+1)]), FileID: fileID(f.session, name)}
	if err := checkName(name); err != nil {
		u.err = err
	} else if err := f.save(part, name); err != nil {
		if hutch.KindOf(err) == hutch.Internal || errors.Is(err, errUpload) {
			return err
		}
		u.err = err
	}
	if u.err != nil {
		u.Status, u.FileID, u.Error = "error", "", hutch.AsError(u.err).Message
	}
	f.files = append(f.files, u)
	return nil
}

// open opens the store of the upload before its first file.
func (f *form) open() error {
	if f.opened {
		return nil
	}
	owner, err := named(func(name string) string { return f.fields[name] })
	if err != nil {
		return err
	}
	f.store, f.opened = storeOf(personOf(f.r.Context()), owner), true
	return f.h.open(f.r.Context(), f.store)
}

func (f *form) save(part *multipart.Part, name string) error {
	kind := writable
	if f.fields["read_only"] == "true" {
		kind = readOnly
	}
	content := httpio.NewArriving(&bounded{part, maxFile}, uploadFault)
	defer content.Wait() // more parts of the form can follow a refused file
	err := f.h.put(f.r.Context(), f.store, f.session, kind, path.Clean(name), content)
	return cmp.Or(content.Err(), err)
}

// bounded is a file that fails with an error when it is too large.
type bounded struct {
	io.Reader
	left int64
}

func (f *bounded) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if f.left -= int64(n); f.left < 0 {
		return 0, errLargeFile
	}
	return n, err
}

// uploadFault returns the error for a file that did not arrive whole.
func uploadFault(err error) error {
	if err == error(errLargeFile) {
		return err
	}
	return errUpload
}

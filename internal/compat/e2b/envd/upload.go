package envd

import (
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"sync/atomic"

	"hutch"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/httpio"
)

// writtenFile is the answer for an uploaded file.
type writtenFile struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"` // always "file"

	Metadata map[string]string `json:"metadata,omitempty"`
}

// maxFiles is how many files one upload can have.
const maxFiles = 10_000

// errBody is the error for a body that ends early or does not match its header.
var errBody = rpcErrorf(invalidArgument, "the request's body did not arrive whole, or is not what its Content-Type and Content-Encoding say: send it again")

// upload writes files: the body itself, or the files of a form.
func (h *Handler) upload(w http.ResponseWriter, r *http.Request) {
	q := request{r, seam.From(r.Context()), r.Context()}
	attributes, err := metadataOf(r.Header)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	a, err := h.filesAccount(&q, r.URL.Query().Get("username"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	body, err := decompressed(r.Header, httpio.NewBody(w, r, h.stall))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	u := &uploading{q: q, account: a, path: r.URL.Query().Get("path"), attributes: attributes, seen: map[string]bool{}}
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && media == "multipart/form-data" && parameters["boundary"] != "":
		u.rest = &restOf{Reader: body}
		err = u.form(multipart.NewReader(u.rest, parameters["boundary"]))
	case err == nil && media == "application/octet-stream":
		err = u.single(body)
	default:
		seam.Refuse(w, http.StatusUnsupportedMediaType, "send multipart/form-data or application/octet-stream")
		return
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeEntries(w, u.files)
}

// decompressed returns the decompressed body. Its size is limited by the sandbox's disk.
func decompressed(header http.Header, body io.Reader) (io.Reader, error) {
	switch encoding := strings.ToLower(header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, errBody
		}
		return z, nil
	default:
		return nil, rpcErrorf(invalidArgument, "unsupported Content-Encoding: %.40s", encoding)
	}
}

// uploading is one upload.
type uploading struct {
	q       request
	account account
	path    string // from the query; empty if the form has the names
	// attributes are set on each file.
	attributes map[string]string
	seen       map[string]bool
	files      []writtenFile
	rest       *restOf // rest of a form
}

func (u *uploading) single(body io.Reader) error {
	if u.path == "" {
		return rpcErrorf(invalidArgument, "the query has no path: it is needed for a body of this type")
	}
	return u.write(u.path, body)
}

func (u *uploading) form(form *multipart.Reader) error {
	for {
		part, err := form.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return u.rest.why(errBody)
		}
		field, name := nameOfPart(part.Header.Get("Content-Disposition"))
		if field != "file" {
			continue // other fields have no meaning, for E2B either
		}
		switch {
		case u.path != "" && len(u.files) > 0:
			return rpcErrorf(invalidArgument, "you cannot upload multiple files to the same path '%.300s'", u.path)
		case u.path != "":
			name = u.path
		case name == "":
			return rpcErrorf(invalidArgument, "a file of the form has no filename, and the query has no path")
		case len(u.files) == maxFiles:
			return rpcErrorf(invalidArgument, "the form has more than %d files, the limit: send some of them at a time", maxFiles)
		}
		if err := u.write(name, part); err != nil {
			return err
		}
	}
	if len(u.files) == 0 {
		return rpcErrorf(invalidArgument, "the form has no file: its field is called file")
	}
	return nil
}

// nameOfPart returns the name of a form's field, and its whole filename: E2B's clients send paths in it.
func nameOfPart(disposition string) (field, filename string) {
	kind, parameters, err := mime.ParseMediaType(disposition)
	if err != nil || kind != "form-data" {
		return "", ""
	}
	return parameters["name"], formEscapes.Replace(parameters["filename"])
}

// formEscapes are the characters that browsers and similar clients escape in the names of a form.
var formEscapes = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n")

// write writes one file, completely or not at all.
func (u *uploading) write(name string, r io.Reader) error {
	p := u.account.path(name)
	if u.seen[p] {
		return rpcErrorf(invalidArgument, "you cannot upload multiple files to the same path '%.300s'", p)
	}
	u.seen[p] = true
	ctx := u.q.ctx
	if len(u.files) > 0 {
		ctx = unmetered(ctx)
	}
	body := httpio.NewArriving(r, early)
	if u.rest != nil {
		u.rest.file.Store(true)
		defer u.rest.file.Store(false)
	}
	info, err := u.q.target.Service.WriteFile(ctx, u.q.target.Sandbox, hutch.WriteRequest{Path: p, Parents: true, Attributes: u.attributes}, body)
	if err != nil {
		return cmp.Or(body.Err(), err)
	}
	u.files = append(u.files, writtenFile{Path: info.Path, Name: path.Base(info.Path), Type: "file", Metadata: metadataIn(u.attributes)})
	return nil
}

// maxRest limits the parts of a form other than files, in bytes. No disk limit applies to them, and a kilobyte of gzip
// can unpack to a megabyte.
const maxRest = 64 << 20

// restOf reads a form, and counts the bytes that it reads between files.
type restOf struct {
	io.Reader
	file atomic.Bool
	n    int64
}

var errRest = rpcErrorf(invalidArgument, "the form has more than %d bytes that are in no file: send only files", maxRest)

func (r *restOf) Read(p []byte) (int, error) {
	if r.file.Load() {
		return r.Reader.Read(p)
	}
	n, err := r.Reader.Read(p)
	if r.n += int64(n); r.n > maxRest {
		return n, errRest
	}
	return n, err
}

// why returns why a form could not be read.
func (r *restOf) why(otherwise error) error {
	if r.n > maxRest {
		return errRest
	}
	return otherwise
}

// early returns the client's error for a body that ends early.
func early(err error) error {
	if errors.Is(err, hutch.Exhausted) { // the owner's memory budget
		return err
	}
	return errBody
}

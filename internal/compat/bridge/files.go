package bridge

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
)

// filePath returns the path that a request is about, relative to the workspace. It answers with an error if the path is
// invalid.
func (h *Handler) filePath(w http.ResponseWriter, r *http.Request) (string, bool) {
	if _, ok := h.session(w, r, r.Header.Get("Session-Id")); !ok {
		return "", false
	}
	given := r.PathValue("path")
	if given == "" {
		h.refuse(w, r, http.StatusBadRequest, codeRequest, "file path must not be empty")
		return "", false
	}
	p, ok := inWorkspace("/" + given)
	if !ok {
		h.refuse(w, r, http.StatusForbidden, codeRequest, "path must resolve to a location within /workspace")
	}
	return p, ok
}

func (h *Handler) readFile(w http.ResponseWriter, r *http.Request, id string) {
	p, ok := h.filePath(w, r)
	if !ok {
		return
	}
	d := h.download(w, r)
	err := compat.OnFirstUse(r.Context(), h.svc, id, func() error {
		_, err := h.svc.ReadFile(r.Context(), id, hutch.ReadRequest{Path: p}, d)
		return err
	})
	if hutch.KindOf(err) == hutch.NotFound && !d.begun {
		h.refuse(w, r, http.StatusNotFound, codeNoFile, "File not found: "+path.Join(workspace, p))
		return
	}
	d.end(h, r, err, codeTransport)
}

func (h *Handler) writeFile(w http.ResponseWriter, r *http.Request, id string) {
	p, ok := h.filePath(w, r)
	if !ok {
		return
	}
	body := upload{httpio.NewBody(w, r, h.stall)}
	err := compat.OnFirstUse(r.Context(), h.svc, id, func() error {
		_, err := h.svc.WriteFile(r.Context(), id, hutch.WriteRequest{Path: p, Parents: true}, body)
		return err
	})
	h.done(w, r, err, codeWrite)
}

// done answers a call that returns nothing.
func (h *Handler) done(w http.ResponseWriter, r *http.Request, err error, code string) {
	if err != nil {
		h.fail(w, r, err, code)
		return
	}
	h.answer(w, r, okay)
}

// persist answers with the workspace as a tar archive.
func (h *Handler) persist(w http.ResponseWriter, r *http.Request, id string) {
	excludes, err := parseExcludes(r.URL.Query().Get("excludes"))
	if err != nil {
		h.fail(w, r, err, codeRead)
		return
	}
	d := h.download(w, r)
	err = compat.OnFirstUse(r.Context(), h.svc, id, func() error {
		return filtered(d, excludes, func(to io.Writer) error {
			return h.svc.Pack(r.Context(), id, hutch.PackRequest{Dir: ".", Format: hutch.Tar}, to)
		})
	})
	d.end(h, r, err, codeRead)
}

// hydrate unpacks a tar archive into the workspace. The sandbox does it: the server does not look into the archive.
func (h *Handler) hydrate(w http.ResponseWriter, r *http.Request, id string) {
	body := bufio.NewReader(upload{httpio.NewBody(w, r, h.stall)})
	if _, err := body.Peek(1); errors.Is(err, io.EOF) {
		h.refuse(w, r, http.StatusBadRequest, codeRequest, "Empty tar payload")
		return
	}
	err := compat.OnFirstUse(r.Context(), h.svc, id, func() error {
		return h.svc.Unpack(r.Context(), id, hutch.UnpackRequest{Dir: ".", Format: hutch.Tar}, body)
	})
	if k := hutch.KindOf(err); err != nil && (k == hutch.Invalid || k == hutch.Denied) && !errors.Is(err, errBroken) {
		h.refuse(w, r, http.StatusBadGateway, codeWrite, "tar extract failed: "+h.message(r, err))
		return
	}
	h.done(w, r, err, codeWrite)
}

// upload is the body of a request. Reading it fails when no data arrives for too long.
type upload struct{ body *httpio.Body }

// errBroken is the cause of the error for a body that did not arrive whole.
var errBroken = errors.New("the body broke off")

func (u upload) Read(b []byte) (int, error) {
	n, err := u.body.Read(b)
	if err != nil && err != io.EOF {
		err = hutch.Errorf(hutch.Invalid, "Could not read request body: it did not arrive whole, so send it again").Because(errors.Join(errBroken, err))
	}
	return n, err
}

// download is an answer of any length. The header is sent with the first byte: until then an error has its own status.
type download struct {
	w     *httpio.Writer
	begun bool
}

func (h *Handler) download(w http.ResponseWriter, r *http.Request) *download {
	return &download{w: h.writer(w, r)}
}

func (d *download) begin() {
	if d.begun {
		return
	}
	d.begun = true
	header := d.w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Disposition", "attachment") // the content is untrusted: a browser must not show it as a page of this server
	header.Set("Cache-Control", "no-store")
	d.w.WriteHeader(http.StatusOK)
}

func (d *download) Write(b []byte) (int, error) {
	d.begin()
	return d.w.Write(b)
}

// end ends the answer. At an error, it breaks off an answer that has begun, so that no client takes it for complete.
func (d *download) end(h *Handler, r *http.Request, err error, code string) {
	switch {
	case err == nil:
		d.begin()
	case !d.begun:
		h.fail(d.w.ResponseWriter, r, err, code)
	default:
		h.message(r, err) // for the log
		http.NewResponseController(d.w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
}

// maxExcludes is how many patterns a persist can have.
const maxExcludes = 1000

// parseExcludes reads which paths to leave out of an archive: paths relative to the workspace, which can have the
// wildcards of [path.Match].
func parseExcludes(text string) ([]exclude, error) {
	var list []exclude
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		if strings.Contains(part, "..") {
			return nil, hutch.Errorf(hutch.Invalid, `exclude paths must not contain ".."`)
		}
		part = strings.TrimPrefix(path.Clean("/"+part), "/")
		e, err := newExclude(part)
		if err != nil {
			return nil, hutch.Errorf(hutch.Invalid, "the exclude path %.80q is not a pattern: %v", part, err)
		}
		if list = append(list, e); len(list) > maxExcludes {
			return nil, hutch.Errorf(hutch.Invalid, "there are more than %d exclude paths", maxExcludes)
		}
	}
	return list, nil
}

package envd

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/httpio"
)

// download answers with a file.
func (h *Handler) download(w http.ResponseWriter, r *http.Request) {
	q := request{r, seam.From(r.Context()), r.Context()}
	encoding, ok := chooseEncoding(r.Header)
	if !ok {
		seam.Refuse(w, http.StatusNotAcceptable, "no acceptable encoding found, supported: [identity, gzip]")
		return
	}
	a, err := h.filesAccount(&q, r.URL.Query().Get("username"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	req := hutch.ReadRequest{Path: a.path(r.URL.Query().Get("path"))}
	d := &downloading{w: w, head: r.Method == http.MethodHead, gzip: encoding == "gzip"}
	if offset, length, ok := httpio.ParseRange(r.Header.Get("Range")); ok && r.Header.Get("If-Range") == "" { // the file's size is known only after it is opened
		d.ranged, req.Offset, req.Length = true, offset, length
	}
	d.req = &req
	req.Opened = d.opened
	_, err = q.target.Service.ReadFile(q.ctx, q.target.Sandbox, req, d)
	switch {
	case err == nil || errors.Is(err, errHead):
		d.finish()
	case !d.begun:
		for name := range w.Header() {
			if strings.HasPrefix(name, "Content-") || name == "Last-Modified" {
				w.Header().Del(name)
			}
		}
		h.failRead(w, r, req.Path, err)
	default: // cuts the connection, so that no client takes the answer for complete
		panic(http.ErrAbortHandler)
	}
}

// failRead answers that a file cannot be read.
func (h *Handler) failRead(w http.ResponseWriter, r *http.Request, p string, err error) {
	if hutch.KindOf(err) == hutch.NotFound && !gone(err) {
		seam.Refuse(w, http.StatusNotFound, "path '"+strings.ToValidUTF8(p, "\uFFFD")+"' does not exist")
		return
	}
	h.fail(w, r, err)
}

// chooseEncoding returns the encoding of an answer. Libraries list all encodings that they can read, so gzip is chosen
// only for a client that lists nothing else, or refuses other encodings.
func chooseEncoding(header http.Header) (encoding string, ok bool) {
	gzipQuality, identityQuality, others := 0.0, -1.0, 0
	for part := range strings.SplitSeq(header.Get("Accept-Encoding"), ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		quality := 1.0
		if text, has := strings.CutPrefix(strings.TrimSpace(parameters), "q="); has {
			quality, _ = strconv.ParseFloat(text, 64)
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "":
		case "gzip":
			gzipQuality = quality
		case "identity":
			identityQuality = quality
		case "*":
			if quality == 0 && identityQuality < 0 {
				identityQuality = 0
			}
			others++
		default:
			others++
		}
	}
	switch {
	case gzipQuality > 0 && (others == 0 && identityQuality < gzipQuality || identityQuality == 0):
		return "gzip", true
	case identityQuality == 0:
		return "", false
	}
	return "identity", true
}

// errHead ends a read whose content the client did not ask for.
var errHead = errors.New("no body is wanted")

// downloading is an answer that receives a file.
type downloading struct {
	w      http.ResponseWriter
	req    *hutch.ReadRequest
	ranged bool
	gzip   bool
	head   bool
	begun  bool
	size   int64
	zip    *gzip.Writer
}

func (d *downloading) opened(info hutch.FileInfo) {
	header := d.w.Header()
	header.Set("Content-Type", "application/octet-stream")
	if t := mime.TypeByExtension(path.Ext(info.Name)); t != "" {
		header.Set("Content-Type", t)
	}
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Disposition", "attachment") // the content is untrusted: a browser must not show it as a page of this server
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept-Encoding")
	header.Set("Last-Modified", info.Modified.UTC().Format(http.TimeFormat))
	d.size = info.Size
	from, to := d.req.Range(info.Size)
	if d.ranged && from < to {
		header.Set("Content-Range", httpio.ContentRange(from, to, info.Size))
	}
	if d.gzip = d.gzip && !d.ranged && info.Size > 0; d.gzip {
		header.Set("Content-Encoding", "gzip")
		return
	}
	header.Set("Accept-Ranges", "bytes")
	header.Set("Content-Length", strconv.FormatInt(to-from, 10))
}

func (d *downloading) begin() {
	if d.begun {
		return
	}
	d.begun = true
	httpio.WriteContentHeader(d.w, d.ranged, d.req.Offset, d.size)
}

func (d *downloading) Write(b []byte) (int, error) {
	d.begin()
	if d.head {
		return 0, errHead
	}
	var w io.Writer = d.w
	if d.gzip {
		if d.zip == nil {
			d.zip, _ = gzip.NewWriterLevel(d.w, gzip.BestSpeed) // a known level
		}
		w = d.zip
	}
	n, err := w.Write(b)
	if err != nil {
		return n, errGone
	}
	return n, nil
}

func (d *downloading) finish() {
	d.begin()
	if d.zip != nil {
		d.zip.Close() // an error means that the client has disconnected
	}
}

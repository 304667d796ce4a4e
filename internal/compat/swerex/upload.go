package swerex

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"regexp"
	"strings"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
	"hutch/internal/pipe"
)

var uploadPath = regexp.MustCompile(`^/swerex/[^/]+/upload$`)

// Uploads reports whether a request's body is a file, which is never held in memory.
func Uploads(r *http.Request) bool {
	return r.Method == http.MethodPost && uploadPath.MatchString(r.URL.Path)
}

const (
	maxParts = 8
	maxField = 8 << 10 // bytes of a part that is not the file
)

func badUpload(message string) error {
	return hutch.Errorf(hutch.Invalid, "%s", message).Because(errBody)
}

var errBroken = badUpload("the upload did not arrive whole: send it again")

// upload stores a file, or unpacks a zip archive. The client sends the file before its path, so the file first gets a
// temporary path in the sandbox.
func (h *Handler) upload(w http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	r.Body = httpio.NewBody(w, r, h.stall)
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, badUpload("an upload is multipart/form-data with file, target_path and unzip")
	}
	f := form{temporary: "/tmp/." + hutch.NewID("upload"), fields: map[string]string{}}
	defer func() {
		if f.sent {
			h.discard(r.Context(), sandbox, f.temporary) // removes nothing if the file was moved
		}
	}()
	if err := h.receive(r.Context(), sandbox, parts, &f); err != nil {
		return nil, err
	}
	unzip, err := f.unzip()
	if err != nil {
		return nil, err
	}
	place := h.store
	if unzip {
		place = h.unpack
	}
	return struct{}{}, place(r.Context(), sandbox, f.temporary, f.fields["target_path"])
}

// form is the content of an upload.
type form struct {
	temporary string // path of the file
	sent      bool
	fields    map[string]string
}

// receive reads all parts of an upload.
func (h *Handler) receive(ctx context.Context, sandbox string, parts *multipart.Reader, f *form) error {
	for range maxParts {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return f.check()
		}
		if err == nil {
			err = h.take(ctx, sandbox, part, f)
		}
		if err != nil {
			return uploadError(err)
		}
	}
	return badUpload("an upload has the fields file, target_path and unzip, and no more")
}

// uploadError returns errors of this server unchanged, and others as errors of the body.
func uploadError(err error) error {
	if _, ours := errors.AsType[*hutch.Error](err); ours {
		return err
	}
	return errBroken
}

func (h *Handler) take(ctx context.Context, sandbox string, part *multipart.Part, f *form) error {
	name := part.FormName()
	if name == "file" {
		if f.sent {
			return badUpload("an upload has one file: send an archive with unzip for more")
		}
		f.sent = true
		content := httpio.NewArriving(part, uploadError)
		err := h.write(ctx, sandbox, f.temporary, content)
		return cmp.Or(content.Err(), err)
	}
	if name != "target_path" && name != "unzip" {
		return hutch.Errorf(hutch.Unsupported, "this server does not have the field %.200q of an upload: leave it out", name).Naming(hutch.AboutField, name).Because(errBody)
	}
	value, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err == nil && len(value) > maxField {
		return badUpload("a field of the upload is too long")
	}
	f.fields[name] = string(value)
	return err
}

func (f *form) check() error {
	if !f.sent || f.fields["target_path"] == "" {
		return badUpload("an upload has the fields file and target_path")
	}
	return nil
}

func (f *form) unzip() (bool, error) {
	switch strings.ToLower(f.fields["unzip"]) {
	case "true", "1", "yes", "on":
		return true, nil
	case "", "false", "0", "no", "off":
		return false, nil
	}
	return false, badUpload("unzip is true or false")
}

// store moves an uploaded file to its path. It never replaces a folder: that would remove everything in it.
func (h *Handler) store(ctx context.Context, sandbox, temporary, target string) error {
	if name := strings.TrimRight(target, "/"); name != "" {
		target = name
	}
	there, err := h.svc.Stat(ctx, sandbox, target)
	if err == nil && there.Type == hutch.Directory {
		return throw("builtins.IsADirectoryError", "target_path is a folder: give the path of the file in it")
	}
	if err != nil && hutch.KindOf(err) != hutch.NotFound {
		return err
	}
	if i := strings.LastIndexByte(target, '/'); err != nil && i > 0 {
		if err := h.svc.Mkdir(ctx, sandbox, target[:i], true); err != nil {
			return err
		}
	}
	return h.svc.Move(ctx, sandbox, temporary, target, err == nil)
}

// unpack unpacks an uploaded archive.
func (h *Handler) unpack(ctx context.Context, sandbox, temporary, target string) error {
	return pipe.Through(func(w io.Writer) error {
		_, err := h.svc.ReadFile(ctx, sandbox, hutch.ReadRequest{Path: temporary}, w)
		return err
	}, func(r io.Reader) error {
		return h.svc.Unpack(ctx, sandbox, hutch.UnpackRequest{Dir: target, Format: hutch.Zip}, r)
	})
}

// discard removes a file in the sandbox, even if the client has disconnected.
func (h *Handler) discard(ctx context.Context, sandbox, file string) {
	ctx, cancel := compat.Cleanup(ctx)
	defer cancel()
	h.svc.Delete(ctx, sandbox, file, false) // an error here leaves the file to the sandbox
}

package swerex

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"hutch"
	"hutch/internal/compat"
)

// maxRead is the largest file that read_file returns, in bytes. write_file has the same limit.
const maxRead = compat.MaxRequest

// readRequest is the body of read_file.
type readRequest struct {
	Path     string  `json:"path"`
	Encoding *string `json:"encoding"`
	Errors   *string `json:"errors"`
}

func (h *Handler) readFile(w http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	var req readRequest
	if err := body(w, r, &req); err != nil {
		return nil, err
	}
	content := bounded{ctx: r.Context()}
	err := compat.OnFirstUse(r.Context(), h.svc, sandbox, func() error {
		_, err := h.svc.ReadFile(r.Context(), sandbox, hutch.ReadRequest{Path: req.Path}, &content)
		return err
	})
	switch {
	case content.err != nil:
		return nil, content.err
	case err != nil && hutch.KindOf(err) == hutch.NotFound && !compat.Missing(err):
		return nil, throw("builtins.FileNotFoundError", hutch.AsError(err).Message)
	case err != nil:
		return nil, err
	}
	encoding, mode := "utf-8", "strict"
	if req.Encoding != nil {
		encoding = *req.Encoding
	}
	if req.Errors != nil {
		mode = *req.Errors
	}
	decoded, err := decodeText(content.kept.Bytes(), encoding, mode)
	return map[string]string{"content": decoded}, err
}

// bounded keeps a file of at most maxRead bytes, within the caller's memory budget. Its only method is Write, so that
// no other method of the buffer can go around the limit.
type bounded struct {
	ctx  context.Context
	kept bytes.Buffer
	err  error // why the file is not kept
}

func (b *bounded) Write(p []byte) (int, error) {
	switch {
	case b.kept.Len()+len(p) > maxRead:
		b.err = hutch.Errorf(hutch.Invalid, "the file is over the limit of %d MiB for read_file: read a part of it with execute", maxRead>>20)
	case !compat.Take(b.ctx, len(p)):
		b.err = compat.ErrNoRoom
	default:
		return b.kept.Write(p)
	}
	return 0, b.err
}

// decodeText decodes bytes as Python's bytes.decode does.
func decodeText(b []byte, encoding, mode string) (string, error) {
	ascii := false
	switch strings.ReplaceAll(strings.ToLower(encoding), "_", "-") {
	case "utf-8", "utf8":
	case "ascii", "us-ascii":
		ascii = true
	case "latin-1", "latin1", "iso-8859-1":
		return latin1(b), nil
	default:
		return "", hutch.Errorf(hutch.Unsupported, "encoding %.40q: this server reads files as utf-8, ascii or latin-1", encoding)
	}
	var out strings.Builder
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		if c == utf8.RuneError && n == 1 || ascii && c >= utf8.RuneSelf {
			n = 1
			shown, err := undecodable(b[0], encoding, mode)
			if err != nil {
				return "", err
			}
			out.WriteString(shown)
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String(), nil
}

func latin1(b []byte) string {
	var out strings.Builder
	for _, c := range b {
		out.WriteRune(rune(c))
	}
	return out.String()
}

// undecodable returns the replacement, in a mode of errors, for a byte that the encoding does not have.
func undecodable(c byte, encoding, mode string) (string, error) {
	switch mode {
	case "strict":
		return "", throw("builtins.ValueError", fmt.Sprintf("the file is not %s: it has the byte 0x%02x; give errors or another encoding", encoding, c))
	case "replace":
		return "\ufffd", nil
	case "ignore":
		return "", nil
	case "backslashreplace":
		return fmt.Sprintf(`\x%02x`, c), nil
	}
	return "", hutch.Errorf(hutch.Unsupported, "errors %.40q: use strict, replace, ignore or backslashreplace", mode)
}

func (h *Handler) writeFile(w http.ResponseWriter, r *http.Request, sandbox string) (any, error) {
	var req struct {
		Content string `json:"content"`
		Path    string `json:"path"`
	}
	if err := body(w, r, &req); err != nil {
		return nil, err
	}
	return struct{}{}, h.write(r.Context(), sandbox, req.Path, strings.NewReader(req.Content))
}

// write writes a file. If the sandbox has to be created first, the write is repeated: a string can be sent again, and a
// body has not been read before.
func (h *Handler) write(ctx context.Context, sandbox, path string, content io.Reader) error {
	return compat.OnFirstUse(ctx, h.svc, sandbox, func() error {
		_, err := h.svc.WriteFile(ctx, sandbox, hutch.WriteRequest{Path: path, Parents: true}, content)
		return err
	})
}

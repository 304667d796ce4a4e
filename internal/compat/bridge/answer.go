package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"hutch"
	"hutch/internal/compat"
)

// The codes of errors, as the original has them.
const (
	codeDenied    = "unauthorized"
	codeRequest   = "invalid_request"
	codeTooLarge  = "payload_too_large"
	codeExec      = "exec_error"
	codeTransport = "exec_transport_error"
	codeNoFile    = "workspace_read_not_found"
	codeRead      = "workspace_archive_read_error"
	codeWrite     = "workspace_archive_write_error"
	codeCapacity  = "capacity_exceeded"
	codePool      = "pool_error"
	codeMount     = "mount_error"
	codeUnmount   = "unmount_error"
	codeSession   = "session_error"
	codeTunnel    = "tunnel_error"
)

// Failure is the body of an error.
type Failure struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

// okay is the answer of calls that return nothing.
var okay = map[string]bool{"ok": true}

// answer sends v as JSON.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		h.fail(w, r, err, codeTransport)
		return
	}
	h.send(w, r, http.StatusOK, b)
}

func (h *Handler) send(w http.ResponseWriter, r *http.Request, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	h.writer(w, r).Write(b) // an error means that the client has disconnected
}

// refuse answers with an error.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	b, _ := json.Marshal(Failure{message, code}) // strings
	h.send(w, r, status, b)
}

// fail answers with err. The code is the one of the call, unless another code describes the error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error, code string) {
	if cause := context.Cause(r.Context()); cause != nil && hutch.KindOf(err) != hutch.Invalid {
		err = cause // the client has disconnected, or the server is closing
	}
	status, code := describe(err, code)
	compat.RetryAfter(w, err)
	h.refuse(w, r, status, code, h.message(r, err))
}

// message returns the text that a client gets for an error, and logs the details that the text leaves out.
func (h *Handler) message(r *http.Request, err error) string {
	e := hutch.AsError(err)
	compat.LogInternal(h.log, r, err)
	return e.Message
}

// describe returns the status and code of an error, for a call that has its own code.
func describe(err error, code string) (int, string) {
	e := hutch.AsError(err)
	about, _ := e.About()
	switch {
	case errors.Is(err, compat.ErrTooLarge):
		return http.StatusRequestEntityTooLarge, codeTooLarge
	case e.Kind == hutch.Invalid:
		return http.StatusBadRequest, codeRequest
	case e.Kind == hutch.Unsupported:
		return http.StatusNotImplemented, code
	case e.Kind == hutch.Denied && about != hutch.AboutFile:
		return http.StatusForbidden, codeDenied
	case e.Kind == hutch.Exhausted && about != hutch.AboutFile:
		return http.StatusServiceUnavailable, codeCapacity
	}
	return http.StatusBadGateway, code
}

// Refuse answers for a guard that does not let a request in.
func Refuse(w http.ResponseWriter, status int, err error) {
	code := codeRequest
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		code = codeDenied
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		code = codeCapacity
	case http.StatusRequestEntityTooLarge:
		code = codeTooLarge
	}
	compat.Answer(w, status, Failure{hutch.AsError(err).Message, code})
}

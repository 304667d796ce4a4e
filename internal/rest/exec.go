package rest

import (
	"net/http"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// exec runs a command and answers with its result; or, for who accepts them,
// with events while it runs.
func (h *Handler) exec(w http.ResponseWriter, r *http.Request) {
	var cmd stream.Command
	err := h.body(w, r, &cmd)
	if err == nil {
		err = cmd.Check()
	}
	if err == nil && cmd.Open {
		err = hutch.Errorf(hutch.Invalid, "openStdin needs a WebSocket: send stdin or stdinBase64, or connect with GET")
	}
	switch {
	case err != nil:
		h.fail(w, r, err)
	case wantsEvents(r):
		h.execEvents(w, r, cmd.Request())
	default:
		h.execWhole(w, r, cmd.Request())
	}
}

func (h *Handler) execWhole(w http.ResponseWriter, r *http.Request, req hutch.ExecRequest) {
	res, err := h.svc.Exec(r.Context(), r.PathValue("id"), req, nil)
	if err != nil {
		h.partial(r, res, err).Write(&writer{w, h.stall})
		return
	}
	h.report(w, r, res)
}

func (h *Handler) execEvents(w http.ResponseWriter, r *http.Request, req hutch.ExecRequest) {
	es := h.events(w)
	defer es.stop()
	res, err := h.svc.Exec(r.Context(), r.PathValue("id"), req, es.output)
	if err != nil {
		es.fail(h.partial(r, res, err))
		return
	}
	es.send("", "exit", res)
}

// partial describes an error that ended a command, with what it had printed.
func (h *Handler) partial(r *http.Request, res hutch.ExecResult, err error) problem.Details {
	d := h.describe(r, err)
	if !res.Timestamp.IsZero() { // it had started
		d.Result = &res
	}
	return d
}

package rest

import (
	"context"
	"net/http"

	"hutch"
	"hutch/internal/httpio"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// exec runs a command and answers with its result or, if the client accepts events, with events while the command
// runs.
func (h *Handler) exec(w http.ResponseWriter, r *http.Request) {
	var cmd stream.Command
	err := h.body(w, r, &cmd)
	if err == nil {
		err = cmd.Check()
	}
	if err == nil && cmd.Open {
		err = hutch.Errorf(hutch.Invalid, "openStdin needs a WebSocket: send stdin or stdinBase64, or connect with GET")
	}
	if err == nil && cmd.Resumable && !wantsEvents(r) {
		err = hutch.Errorf(hutch.Invalid, "resumable needs a stream: ask for it with Accept: %s, or connect with a WebSocket client", httpio.EventStream)
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
		h.partial(r, res, err).Write(h.writer(w, r))
		return
	}
	h.report(w, r, res)
}

func (h *Handler) execEvents(w http.ResponseWriter, r *http.Request, req hutch.ExecRequest) {
	es := h.events(w, r)
	defer es.Close()
	req.Started = func(id string) { es.send("0", "started", stream.Started{Exec: id}) }
	es.exit(h, r)(h.svc.Exec(r.Context(), r.PathValue("id"), req, es.output))
}

// exit returns a function that sends how a command ended.
func (es events) exit(h *Handler, r *http.Request) func(hutch.ExecResult, error) {
	return func(res hutch.ExecResult, err error) {
		if err != nil {
			es.fail(h.partial(r, res, err))
			return
		}
		es.send("", "exit", res)
	}
}

// resumeExec sends the output of a resumable command from a cursor on, and then how the command ended.
func (h *Handler) resumeExec(w http.ResponseWriter, r *http.Request) {
	cursor, err := h.resumeCursor(r)
	switch {
	case err != nil:
		h.fail(w, r, err)
	case wantsSocket(r):
		h.attend(w, r, func(s *socket, r *http.Request) any {
			return h.serveExec(s, r, func(ctx context.Context) (hutch.ExecResult, error) {
				return h.svc.ResumeExec(ctx, r.PathValue("id"), r.PathValue("exec"), cursor, s.output)
			})
		})
	case wantsEvents(r):
		es := h.events(w, r)
		defer es.Close()
		es.exit(h, r)(h.svc.ResumeExec(r.Context(), r.PathValue("id"), r.PathValue("exec"), cursor, es.output))
	default: // an answer without events has only the end
		res, err := h.svc.ResumeExec(r.Context(), r.PathValue("id"), r.PathValue("exec"), cursor, nil)
		if err != nil {
			h.partial(r, res, err).Write(h.writer(w, r))
			return
		}
		h.report(w, r, res)
	}
}

func (h *Handler) resumeCursor(r *http.Request) (int64, error) {
	q, err := query(r, "cursor")
	if err != nil {
		return 0, err
	}
	return cursorOf(r, q)
}

func (h *Handler) cancelExec(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.svc.CancelExec(r.Context(), r.PathValue("id"), r.PathValue("exec")))
}

// partial describes an error that ended a command, with the output until then.
func (h *Handler) partial(r *http.Request, res hutch.ExecResult, err error) problem.Details {
	d := h.describe(r, err)
	if !res.Timestamp.IsZero() { // the command had started
		d.Result = &res
	}
	return d
}

package rest

import (
	"bytes"
	"net/http"

	"hutch"
	"hutch/internal/stream"
)

// input writes the body to a process. It reads the whole body first, so that it notices when the client leaves while
// the program does not read.
func (h *Handler) input(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "end")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	end, err := flag(q, "end")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	b, err := h.raw(w, r)
	if err == nil {
		err = h.svc.Input(r.Context(), r.PathValue("id"), r.PathValue("process"), bytes.NewReader(b), end)
	}
	h.done(w, r, err)
}

func (h *Handler) resize(w http.ResponseWriter, r *http.Request) {
	var size hutch.Size
	err := h.body(w, r, &size)
	if err == nil {
		err = h.svc.Resize(r.Context(), r.PathValue("id"), r.PathValue("process"), size)
	}
	h.done(w, r, err)
}

func (h *Handler) wait(r *http.Request, req hutch.WaitRequest) (hutch.WaitResult, error) {
	return h.svc.Wait(r.Context(), r.PathValue("id"), r.PathValue("process"), req)
}

func (h *Handler) cleanProcesses(w http.ResponseWriter, r *http.Request) {
	n, err := h.svc.CleanProcesses(r.Context(), r.PathValue("id"))
	reply(h, w, r)(stream.Cleaned{Removed: n}, err)
}

func (h *Handler) languages(w http.ResponseWriter, r *http.Request) {
	list, err := h.svc.Languages(r.Context(), r.PathValue("id"))
	reply(h, w, r)(orEmpty(list), err)
}

// done answers a call that returns only an error.
func (h *Handler) done(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

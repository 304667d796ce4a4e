package rest

import (
	"net/http"

	"hutch"
)

func (h *Handler) snapshotRoutes() {
	h.route("/v1/snapshots", methods{"GET": h.snapshots})
	h.route("/v1/snapshots/{snapshot}", methods{"DELETE": h.deleteSnapshot})
	h.route("/v1/sandboxes/{id}/snapshots", methods{"POST": h.snapshot})
	h.route("/v1/sandboxes/{id}/fork", methods{"POST": h.fork})
	h.route("/v1/sandboxes/{id}/pause", methods{"POST": h.pause})
	h.route("/v1/sandboxes/{id}/resume", methods{"POST": h.resume})
}

func (h *Handler) snapshot(w http.ResponseWriter, r *http.Request) {
	var req hutch.SnapshotRequest
	if err := h.body(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h, w, r)(h.svc.Snapshot(r.Context(), r.PathValue("id"), req))
}

func (h *Handler) snapshots(w http.ResponseWriter, r *http.Request) {
	list, err := h.svc.Snapshots(r.Context())
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) deleteSnapshot(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.svc.DeleteSnapshot(r.Context(), r.PathValue("snapshot")))
}

func (h *Handler) fork(w http.ResponseWriter, r *http.Request) {
	var req hutch.ForkRequest
	if err := h.body(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	forks, err := h.svc.Fork(r.Context(), r.PathValue("id"), req)
	reply(h, w, r)(orEmpty(forks), err)
}

func (h *Handler) pause(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Pause(r.Context(), r.PathValue("id")))
}

func (h *Handler) resume(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Resume(r.Context(), r.PathValue("id")))
}

package rest

import (
	"net/http"

	"hutch"
)

func (h *Handler) snapshot(r *http.Request, req hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return h.svc.Snapshot(r.Context(), r.PathValue("id"), req)
}

func (h *Handler) createTemplate(r *http.Request, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	return h.svc.CreateTemplate(r.Context(), req)
}

func (h *Handler) snapshots(w http.ResponseWriter, r *http.Request) {
	list, err := h.svc.Snapshots(r.Context())
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) tagSnapshot(r *http.Request, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	return h.svc.TagSnapshot(r.Context(), r.PathValue("snapshot"), req)
}

func (h *Handler) deleteSnapshot(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.svc.DeleteSnapshot(r.Context(), r.PathValue("snapshot")))
}

func (h *Handler) diffSnapshot(w http.ResponseWriter, r *http.Request) {
	req, err := snapshotDiffRequest(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	diff, err := h.svc.DiffSnapshot(r.Context(), r.PathValue("snapshot"), req)
	diff.Files = orEmpty(diff.Files)
	reply(h, w, r)(diff, err)
}

func snapshotDiffRequest(r *http.Request) (req hutch.SnapshotDiffRequest, err error) {
	q, err := query(r, "to", "sandboxId", "path", "text", "wake")
	if err != nil {
		return req, err
	}
	req = hutch.SnapshotDiffRequest{To: q.Get("to"), SandboxID: q.Get("sandboxId"), Path: q.Get("path")}
	if req.Text, err = flag(q, "text"); err != nil {
		return req, err
	}
	req.Wake, err = flag(q, "wake")
	return req, err
}

func (h *Handler) fork(r *http.Request, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	forks, err := h.svc.Fork(r.Context(), r.PathValue("id"), req)
	return orEmpty(forks), err
}

func (h *Handler) pause(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Pause(r.Context(), r.PathValue("id")))
}

func (h *Handler) hibernate(r *http.Request, req hutch.HibernateRequest) (hutch.Sandbox, error) {
	return h.svc.Hibernate(r.Context(), r.PathValue("id"), req)
}

func (h *Handler) resume(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Resume(r.Context(), r.PathValue("id")))
}

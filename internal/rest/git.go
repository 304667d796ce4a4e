package rest

import (
	"net/http"

	"hutch"
)

// gitRoutes are the handlers of the verbs of git.
type gitRoutes struct{ *Handler }

func (h gitRoutes) clone(r *http.Request, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	return h.svc.GitClone(r.Context(), r.PathValue("id"), req)
}

func (h gitRoutes) commit(r *http.Request, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	return h.svc.GitCommit(r.Context(), r.PathValue("id"), req)
}

func (h gitRoutes) status(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "dir")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h.Handler, w, r)(h.svc.GitStatus(r.Context(), r.PathValue("id"), q.Get("dir")))
}

// diff answers with the bytes that git printed, whose encoding is unknown.
func (h gitRoutes) diff(w http.ResponseWriter, r *http.Request) {
	req, err := diffRequest(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	diff, err := h.svc.GitDiff(r.Context(), r.PathValue("id"), req)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/x-diff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h.writer(w, r).Write([]byte(diff)) // an error means that the client has disconnected
}

// diffRequest reads the parameters; path can be repeated.
func diffRequest(r *http.Request) (req hutch.GitDiffRequest, err error) {
	once, paths, err := repeated(r, "path")
	if err != nil {
		return req, err
	}
	q, err := query(once, "dir", "from", "to", "staged")
	if err != nil {
		return req, err
	}
	req = hutch.GitDiffRequest{Dir: q.Get("dir"), From: q.Get("from"), To: q.Get("to"), Paths: paths}
	req.Staged, err = flag(q, "staged")
	return req, err
}

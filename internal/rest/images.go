package rest

import (
	"io"
	"net/http"

	"hutch"
)

// imageRoutes are the handlers of the verbs on images.
type imageRoutes struct{ *Handler }

// pull answers with the image or, if the client accepts events, with its progress and then the image.
func (h imageRoutes) pull(w http.ResponseWriter, r *http.Request) {
	var req hutch.PullRequest
	if err := h.body(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	h.transfer(w, r, func(progress func(hutch.Transfer) error) (any, error) {
		return h.images.PullImage(r.Context(), req, progress)
	})
}

func (h imageRoutes) push(w http.ResponseWriter, r *http.Request) {
	var req hutch.PushRequest
	if err := h.body(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	h.transfer(w, r, func(progress func(hutch.Transfer) error) (any, error) {
		return struct{}{}, h.images.PushImage(r.Context(), req, progress)
	})
}

// transfer makes a call that reports its progress. The last event, end, holds what the call returned.
func (h imageRoutes) transfer(w http.ResponseWriter, r *http.Request, do func(func(hutch.Transfer) error) (any, error)) {
	if !wantsEvents(r) {
		reply(h.Handler, w, r)(do(nil))
		return
	}
	es := h.events(w, r)
	defer es.Close()
	answer, err := do(func(t hutch.Transfer) error { return es.send("", "progress", t) })
	if err != nil {
		es.fail(h.describe(r, err))
		return
	}
	es.send("", "end", answer)
}

func (h imageRoutes) load(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r, "name")
	if q.err != nil {
		h.fail(w, r, q.err)
		return
	}
	reply(h.Handler, w, r)(h.images.LoadImages(r.Context(), q.Get("name"), fileRoutes(h).upload(w, r)))
}

func (h imageRoutes) commit(r *http.Request, req hutch.CommitRequest) (hutch.Image, error) {
	return h.images.CommitImage(r.Context(), r.PathValue("id"), req)
}

func (h imageRoutes) save(w http.ResponseWriter, r *http.Request) {
	name, err := imageOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	fileRoutes(h).download(w, r, "application/x-tar", func(a io.Writer) error { return h.images.SaveImage(r.Context(), name, a) })
}

// imageOf is the image that the request names. It is a parameter, as references hold slashes.
func imageOf(r *http.Request) (string, error) {
	q, err := query(r, "image")
	if err != nil {
		return "", err
	}
	return q.Get("image"), hutch.CheckImage(q.Get("image"))
}

func (h imageRoutes) tag(r *http.Request, req hutch.TagRequest) (hutch.Image, error) {
	return h.images.TagImage(r.Context(), req.Image, req.Name)
}

func (h imageRoutes) inspect(w http.ResponseWriter, r *http.Request) {
	name, err := imageOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h.Handler, w, r)(h.images.Image(r.Context(), name))
}

func (h imageRoutes) list(w http.ResponseWriter, r *http.Request) {
	list, err := h.images.Images(r.Context())
	reply(h.Handler, w, r)(orEmpty(list), err)
}

func (h imageRoutes) delete(w http.ResponseWriter, r *http.Request) {
	name, err := imageOf(r)
	if err == nil {
		err = h.images.DeleteImage(r.Context(), name)
	}
	h.done(w, r, err)
}

func (h imageRoutes) prune(r *http.Request, req hutch.PruneRequest) (hutch.Pruned, error) {
	return h.images.PruneImages(r.Context(), req)
}

package rest

import (
	"context"
	"io"
	"net/http"

	"hutch"
)

// imageRoutes are the handlers of the verbs on images.
type imageRoutes struct{ *Handler }

func (h imageRoutes) pull(ctx context.Context, req hutch.PullRequest, progress func(hutch.Transfer) error) (any, error) {
	return h.images.PullImage(ctx, req, progress)
}

func (h imageRoutes) push(ctx context.Context, req hutch.PushRequest, progress func(hutch.Transfer) error) (any, error) {
	return struct{}{}, h.images.PushImage(ctx, req, progress)
}

// transfers returns the handler of a call that can report its progress. A client that accepts events gets the progress,
// and a last event "end" with the result.
func transfers[Body any](h imageRoutes, do func(context.Context, Body, func(hutch.Transfer) error) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body Body
		if err := h.body(w, r, &body); err != nil {
			h.fail(w, r, err)
			return
		}
		if !wantsEvents(r) {
			reply(h.Handler, w, r)(do(r.Context(), body, nil))
			return
		}
		streamProgress(h.Handler, w, r, func(progress func(hutch.Transfer) error) (any, error) { return do(r.Context(), body, progress) })
	}
}

// streamProgress sends the progress of a call as events, and a last event "end" with the result.
func streamProgress[Event, Result any](h *Handler, w http.ResponseWriter, r *http.Request, do func(progress func(Event) error) (Result, error)) {
	es := h.events(w, r)
	defer es.Close()
	answer, err := do(func(e Event) error { return es.send("", "progress", e) })
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

func (h imageRoutes) commitSnapshot(r *http.Request, req hutch.CommitRequest) (hutch.Image, error) {
	return h.images.CommitSnapshot(r.Context(), r.PathValue("snapshot"), req)
}

func (h imageRoutes) save(w http.ResponseWriter, r *http.Request) {
	name, err := imageOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	fileRoutes(h).download(w, r, "application/x-tar", func(a io.Writer) error { return h.images.SaveImage(r.Context(), name, a) })
}

// imageOf returns the image named in a query parameter. It is not in the path, because references contain slashes.
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

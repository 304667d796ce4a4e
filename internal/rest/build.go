package rest

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/httpio"
	"hutch/internal/stream"
)

// build makes an image of a Dockerfile. The body has two parts, in this order: the request, and the context.
func (h imageRoutes) build(w http.ResponseWriter, r *http.Request) {
	defer httpio.Duplex(w, r)() // progress is sent while the context still arrives
	req, files, err := h.buildParts(w, r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	make := func(ctx context.Context, progress func(hutch.BuildEvent) error) (hutch.Image, error) {
		return h.images.BuildImage(ctx, req, files, progress)
	}
	if !wantsEvents(r) {
		reply(h.Handler, w, r)(make(r.Context(), nil))
		return
	}
	es := h.events(w, r)
	defer es.Close()
	answer, err := make(r.Context(), func(e hutch.BuildEvent) error { return es.send("", "progress", e) })
	if err != nil {
		es.fail(h.describe(r, err))
		return
	}
	es.send("", "end", answer)
}

// errNoRoomForPart is for a request of a build. Only the context after it is a stream, which takes no memory.
var errNoRoomForPart = hutch.Errorf(hutch.Exhausted, "the requests and answers of this token that are under way take as much memory as it may have: wait for some, or send less at a time").
	With("limit", "memory of requests").With("retryAfter", 1)

// buildParts reads the request of a build, and opens the context after it. A missing context is empty.
func (h imageRoutes) buildParts(w http.ResponseWriter, r *http.Request) (req hutch.BuildRequest, files io.Reader, err error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return req, nil, hutch.Errorf(hutch.Invalid, "the body of a build is multipart/form-data, with the parts request (JSON) and context (a tar archive)")
	}
	parts := multipart.NewReader(fileRoutes(h).upload(w, r), params["boundary"])
	part, err := parts.NextPart()
	if err != nil || part.FormName() != "request" {
		return req, nil, errors.Join(hutch.Errorf(hutch.Invalid, "the first part of the body must be request, with the JSON of the build"), err)
	}
	budget := caller.From(r.Context()).Budget
	text, err := io.ReadAll(budget.Reader(io.LimitReader(part, stream.MaxRequest+1), errNoRoomForPart))
	switch {
	case err != nil:
		return req, nil, err
	case len(text) > stream.MaxRequest:
		return req, nil, errTooLarge
	case !budget.TakeJSON(text):
		return req, nil, errManyValues
	}
	if err := decode(text, &req); err != nil {
		return req, nil, err
	}
	part, err = parts.NextPart()
	switch {
	case errors.Is(err, io.EOF):
		return req, nil, nil
	case err != nil:
		return req, nil, hutch.Errorf(hutch.Invalid, "the request's body did not arrive whole: send it again").Because(err)
	case part.FormName() != "context":
		return req, nil, hutch.Errorf(hutch.Invalid, "the body has a part %.60q: after request comes context, a tar archive", part.FormName())
	}
	return req, part, nil
}

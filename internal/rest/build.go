package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"runtime/debug"
	"sync"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/httpio"
	"hutch/internal/stream"
)

// build makes an image from a Dockerfile. The body has two parts, in this order: the request, and the context.
func (h imageRoutes) build(w http.ResponseWriter, r *http.Request) {
	defer httpio.Duplex(w, r)() // progress is sent while the context still arrives
	req, files, err := h.buildParts(w, r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	make := func(ctx context.Context, progress func(hutch.BuildEvent) error) (hutch.Image, error) {
		if req.Detach {
			return h.buildDetached(ctx, req, files, progress)
		}
		return h.images.BuildImage(ctx, req, files, progress)
	}
	if !wantsEvents(r) {
		reply(h.Handler, w, r)(make(r.Context(), nil))
		return
	}
	streamProgress(h.Handler, w, r, func(progress func(hutch.BuildEvent) error) (hutch.Image, error) { return make(r.Context(), progress) })
}

// buildDetached starts a build that continues even if its client leaves, once the context has arrived. It returns when
// the build has ended or its client has left. The build ends with the caller's token, and when the handler closes.
func (h imageRoutes) buildDetached(ctx context.Context, req hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error) (hutch.Image, error) {
	free := caller.From(ctx).Budget.Hold() // the build keeps the request in memory
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	run, end := caller.Until(run, h.ctx)
	release := func() {}
	if p := caller.From(ctx).Principal; p != nil {
		run, release = p.Hold(run)
	}
	arrived := make(chan struct{}) // closed when the build no longer needs the client
	if files == nil {
		close(arrived)
	} else {
		files = &untilEnd{r: files, ended: arrived}
	}
	events := &detachable{progress: progress, arrived: arrived}
	var img hutch.Image
	var err error
	over := make(chan struct{})
	h.calls.Go(func() {
		defer free()
		defer cancel(nil)
		defer end()
		defer release()
		defer close(over)
		defer func() {
			if cause := recover(); cause != nil { // this goroutine is not the HTTP server's, so a panic would end the process
				h.log.Error("panic in a detached build", "err", cause, "stack", string(debug.Stack()))
				err = hutch.AsError(fmt.Errorf("the build panicked: %v", cause))
			}
		}()
		img, err = h.images.BuildImage(run, req, files, events.send)
	})
	select {
	case <-over:
		return img, err
	case <-ctx.Done():
	}
	events.detach()
	select {
	case <-arrived:
		return hutch.Image{}, errGone
	default:
		cancel(context.Cause(ctx))
		<-over // the build reads from the client
		return img, err
	}
}

// untilEnd is a reader that notes the end of its input.
type untilEnd struct {
	r     io.Reader
	ended chan struct{}
	once  sync.Once
}

// Interrupt implements an optional interface that images.BuildImage looks for.
func (u *untilEnd) Interrupt() {
	if r, ok := u.r.(interface{ Interrupt() }); ok {
		r.Interrupt()
	}
}

func (u *untilEnd) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if errors.Is(err, io.EOF) {
		u.once.Do(func() { close(u.ended) })
	}
	return n, err
}

// detachable passes the events of a build to its client, until the client has left.
type detachable struct {
	mu       sync.Mutex
	progress func(hutch.BuildEvent) error
	arrived  <-chan struct{}
}

func (d *detachable) send(e hutch.BuildEvent) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.progress == nil {
		return nil
	}
	err := d.progress(e)
	if err == nil {
		return nil
	}
	d.progress = nil
	select {
	case <-d.arrived:
		return nil // the build continues without its client
	default:
		return err
	}
}

func (d *detachable) detach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress = nil
}

// listBuilds answers with the records of builds.
func (h imageRoutes) listBuilds(w http.ResponseWriter, r *http.Request) {
	list, err := h.images.Builds(r.Context())
	reply(h.Handler, w, r)(orEmpty(list), err)
}

// buildLogs answers with the output of a build; a client that asks for events gets them until the build has ended.
func (h imageRoutes) buildLogs(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("build")
	if !wantsEvents(r) {
		log := hutch.BuildOutput{Events: []hutch.BuildEvent{}}
		var err error
		log.Build, err = h.images.BuildLogs(r.Context(), id, false, func(e hutch.BuildEvent) error {
			log.Events = append(log.Events, e)
			return nil
		})
		reply(h.Handler, w, r)(log, err)
		return
	}
	streamProgress(h.Handler, w, r, func(progress func(hutch.BuildEvent) error) (hutch.Build, error) {
		return h.images.BuildLogs(r.Context(), id, true, progress)
	})
}

func (h imageRoutes) deleteBuild(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.images.DeleteBuild(r.Context(), r.PathValue("build")))
}

// errNoRoomForPart is the error for the first part of a build, the request, which is held in memory. The context after
// it is a stream and takes no memory.
var errNoRoomForPart = hutch.Errorf(hutch.Exhausted, "the requests and answers of this token that are under way take as much memory as it may have: wait for some, or send less at a time").
	With("limit", "memory of requests").With("retryAfter", 1)

// buildParts reads the request of a build, and opens the context after it. A missing context is empty.
func (h imageRoutes) buildParts(w http.ResponseWriter, r *http.Request) (req hutch.BuildRequest, files io.Reader, err error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return req, nil, hutch.Errorf(hutch.Invalid, "the body of a build is multipart/form-data, with the parts request (JSON) and context (a tar archive)")
	}
	body := fileRoutes(h).upload(w, r)
	parts := multipart.NewReader(body, params["boundary"])
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
		io.CopyN(io.Discard, body, maxEpilogue) // read the rest, as at the end of a context
		return req, nil, nil
	case err != nil:
		return req, nil, hutch.Errorf(hutch.Invalid, "the request's body did not arrive whole: send it again").Because(err)
	case part.FormName() != "context":
		return req, nil, hutch.Errorf(hutch.Invalid, "the body has a part %.60q: after request comes context, a tar archive", part.FormName())
	}
	return req, lastPart{part, body, body.body.Interrupt}, nil
}

// lastPart is the last part of a body. At its end it also reads the rest of the body, because the server notices a
// disconnect of the client only then.
type lastPart struct {
	part, body io.Reader
	interrupt  func()
}

// Interrupt ends a Read that waits for the client.
func (l lastPart) Interrupt() { l.interrupt() }

func (l lastPart) Read(p []byte) (int, error) {
	n, err := l.part.Read(p)
	if errors.Is(err, io.EOF) {
		io.CopyN(io.Discard, l.body, maxEpilogue)
	}
	return n, err
}

const maxEpilogue = 4096 // bytes after the last part that are read

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"

	"hutch"
)

// BuildImage implements hutch.Images.
func (c *Client) BuildImage(ctx context.Context, req hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error) (img hutch.Image, err error) {
	to := at("BuildImage").check(req.Check())
	if to.err != nil {
		return img, to.err
	}
	if progress == nil {
		progress = func(hutch.BuildEvent) error { return nil }
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	sent := make(chan error, 1)
	go func() {
		err := writeBuild(form, req, files)
		w.CloseWithError(err)
		sent <- err
	}()
	defer func() {
		r.CloseWithError(errUnread)
		if failed := <-sent; failed != nil && failed != errUnread && !errors.Is(failed, io.ErrClosedPipe) && err != nil {
			err = failed // what the context is read from says why; a server that answers before it has read all says it better
		}
	}()
	call, err := http.NewRequestWithContext(ctx, to.method, c.url+to.path, r)
	if err != nil {
		return img, hutch.Errorf(hutch.Invalid, "the server's URL %q cannot be used: %v", c.url, err)
	}
	call.Header = c.header(ctx)
	call.Header.Set("Content-Type", form.FormDataContentType())
	call.Header.Set("Accept", "text/event-stream")
	resp, err := c.HTTP.Do(call)
	if err != nil {
		return img, c.fault(ctx, err)
	}
	defer resp.Body.Close()
	return img, c.followAnswer(ctx, resp, "progress", func(data []byte) error {
		var e hutch.BuildEvent
		if err := json.Unmarshal(data, &e); err != nil {
			return c.fault(ctx, err)
		}
		return progress(e)
	}, &img)
}

var errUnread = hutch.Errorf(hutch.Unavailable, "the server did not read the whole context")

// writeBuild writes the two parts of a build.
func writeBuild(form *multipart.Writer, req hutch.BuildRequest, files io.Reader) error {
	part, err := form.CreateFormField("request")
	if err == nil {
		err = json.NewEncoder(part).Encode(req)
	}
	if err == nil && files != nil {
		if part, err = form.CreateFormFile("context", "context.tar"); err == nil {
			_, err = io.Copy(part, files)
		}
	}
	if err != nil {
		return err
	}
	return form.Close()
}

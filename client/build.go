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
	resp, end, err := c.sendForm(ctx, to, req, "context", files)
	defer func() { err = end(err) }()
	if err != nil {
		return img, err
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

// Builds implements hutch.Images.
func (c *Client) Builds(ctx context.Context) ([]hutch.Build, error) {
	return call[[]hutch.Build](ctx, c, at("Builds"), nil)
}

// BuildLogs implements hutch.Images.
func (c *Client) BuildLogs(ctx context.Context, build string, follow bool, out func(hutch.BuildEvent) error) (record hutch.Build, err error) {
	to := at("BuildLogs", build)
	if follow {
		return record, followTo(ctx, c, to, nil, "progress", out, &record)
	}
	log, err := call[hutch.BuildOutput](ctx, c, to, nil)
	for _, e := range log.Events {
		if err == nil {
			err = out(e)
		}
	}
	return log.Build, err
}

// DeleteBuild implements hutch.Images.
func (c *Client) DeleteBuild(ctx context.Context, build string) error {
	_, err := call[struct{}](ctx, c, at("DeleteBuild", build), nil)
	return err
}

var errUnread = hutch.Errorf(hutch.Unavailable, "the server did not read the whole archive")

// sendForm sends a form: req as JSON and, unless files is nil, the archive in the part with the given name. The answer
// is a stream of events. After reading it, the caller calls end with the error of the call, and returns what end
// returns.
func (c *Client) sendForm(ctx context.Context, to endpoint, req any, name string, files io.Reader) (resp *http.Response, end func(error) error, err error) {
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	sent := make(chan error, 1)
	go func() {
		err := writeForm(form, req, name, files)
		w.CloseWithError(err)
		sent <- err
	}()
	end = func(err error) error {
		r.CloseWithError(errUnread)
		if failed := <-sent; failed != nil && failed != errUnread && !errors.Is(failed, io.ErrClosedPipe) && err != nil {
			return failed // says why the archive could not be read; if the server answered early, its own error is more precise
		}
		return err
	}
	call, err := http.NewRequestWithContext(ctx, to.method, c.url+to.path, r)
	if err != nil {
		return nil, end, hutch.Errorf(hutch.Invalid, "the server's URL %q cannot be used: %v", c.url, err)
	}
	call.Header = c.header(ctx)
	call.Header.Set("Content-Type", form.FormDataContentType())
	call.Header.Set("Accept", "text/event-stream")
	resp, err = c.HTTP.Do(call)
	if err != nil {
		return nil, end, c.fault(ctx, err)
	}
	return resp, end, nil
}

// writeForm writes the parts of a form.
func writeForm(form *multipart.Writer, req any, name string, files io.Reader) error {
	part, err := form.CreateFormField("request")
	if err == nil {
		err = json.NewEncoder(part).Encode(req)
	}
	if err == nil && files != nil {
		if part, err = form.CreateFormFile(name, name+".tar"); err == nil {
			_, err = io.Copy(part, files)
		}
	}
	if err != nil {
		return err
	}
	return form.Close()
}

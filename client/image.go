package client

import (
	"context"
	"io"
	"net/url"

	"hutch"
)

var _ hutch.Images = (*Client)(nil)

// PullImage implements hutch.Images.
func (c *Client) PullImage(ctx context.Context, req hutch.PullRequest, progress func(hutch.Transfer) error) (hutch.Image, error) {
	return transfer[hutch.Image](ctx, c, at("PullImage").check(req.Check()), req, progress)
}

// PushImage implements hutch.Images.
func (c *Client) PushImage(ctx context.Context, req hutch.PushRequest, progress func(hutch.Transfer) error) error {
	_, err := transfer[struct{}](ctx, c, at("PushImage").check(req.Check()), req, progress)
	return err
}

// transfer makes a call that reports its progress.
func transfer[T any](ctx context.Context, c *Client, to endpoint, req any, progress func(hutch.Transfer) error) (answer T, err error) {
	if progress == nil {
		return call[T](ctx, c, to, req)
	}
	return answer, followTo(ctx, c, to, req, "progress", progress, &answer)
}

// LoadImages implements hutch.Images.
func (c *Client) LoadImages(ctx context.Context, name string, r io.Reader) (images []hutch.Image, err error) {
	to := at("LoadImages")
	if name != "" {
		to = to.check(hutch.CheckImage(name)).with(url.Values{"name": {name}})
	}
	return images, c.send(ctx, to, r, &images)
}

// CommitImage implements hutch.Images.
func (c *Client) CommitImage(ctx context.Context, sandbox string, req hutch.CommitRequest) (hutch.Image, error) {
	return call[hutch.Image](ctx, c, at("CommitImage", sandbox).check(req.Check()), req)
}

// CommitSnapshot implements hutch.Images.
func (c *Client) CommitSnapshot(ctx context.Context, snapshot string, req hutch.CommitRequest) (hutch.Image, error) {
	return call[hutch.Image](ctx, c, at("CommitSnapshot", snapshot).check(req.Check()), req)
}

// SaveImage implements hutch.Images.
func (c *Client) SaveImage(ctx context.Context, image string, w io.Writer) error {
	return c.receive(ctx, imageAt("SaveImage", image), w)
}

// TagImage implements hutch.Images.
func (c *Client) TagImage(ctx context.Context, image, name string) (hutch.Image, error) {
	req := hutch.TagRequest{Image: image, Name: name}
	return call[hutch.Image](ctx, c, at("TagImage").check(req.Check()), req)
}

// Image implements hutch.Images.
func (c *Client) Image(ctx context.Context, image string) (hutch.Image, error) {
	return call[hutch.Image](ctx, c, imageAt("Image", image), nil)
}

// Images implements hutch.Images.
func (c *Client) Images(ctx context.Context) ([]hutch.Image, error) {
	return call[[]hutch.Image](ctx, c, at("Images"), nil)
}

// DeleteImage implements hutch.Images.
func (c *Client) DeleteImage(ctx context.Context, image string) error {
	_, err := call[struct{}](ctx, c, imageAt("DeleteImage", image), nil)
	return err
}

// PruneImages implements hutch.Images.
func (c *Client) PruneImages(ctx context.Context, req hutch.PruneRequest) (hutch.Pruned, error) {
	return call[hutch.Pruned](ctx, c, at("PruneImages").check(req.Check()), req)
}

// imageAt returns the endpoint of a verb on one image.
func imageAt(name, image string) endpoint {
	return at(name).check(hutch.CheckImage(image)).with(url.Values{"image": {image}})
}

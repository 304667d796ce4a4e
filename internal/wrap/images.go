package wrap

import (
	"context"
	"io"

	"hutch"
	"hutch/internal/verb"
)

// ImageService is a hutch.Images that calls Next with Hook around each call.
type ImageService struct {
	Next hutch.Images
	Hook Hook
}

// PullImage implements hutch.Images.
func (s *ImageService) PullImage(ctx context.Context, req hutch.PullRequest, progress func(hutch.Transfer) error) (hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "PullImage", Target: req.Image, Request: req}, func(ctx context.Context) (hutch.Image, error) {
		return next(ctx, s).PullImage(ctx, req, progress)
	})
}

// LoadImages implements hutch.Images.
func (s *ImageService) LoadImages(ctx context.Context, name string, r io.Reader) ([]hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "LoadImages", Target: name}, func(ctx context.Context) ([]hutch.Image, error) {
		return next(ctx, s).LoadImages(ctx, name, r)
	})
}

// CommitImage implements hutch.Images.
func (s *ImageService) CommitImage(ctx context.Context, sandbox string, req hutch.CommitRequest) (hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CommitImage", Sandbox: sandbox, Target: req.Name, Request: req}, func(ctx context.Context) (hutch.Image, error) {
		return next(ctx, s).CommitImage(ctx, sandbox, req)
	})
}

// CommitSnapshot implements hutch.Images.
func (s *ImageService) CommitSnapshot(ctx context.Context, snapshot string, req hutch.CommitRequest) (hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CommitSnapshot", Target: snapshot + " as " + req.Name, Request: req}, func(ctx context.Context) (hutch.Image, error) {
		return next(ctx, s).CommitSnapshot(ctx, snapshot, req)
	})
}

// BuildImage implements hutch.Images.
func (s *ImageService) BuildImage(ctx context.Context, req hutch.BuildRequest, files io.Reader, progress func(hutch.BuildEvent) error) (hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "BuildImage", Target: req.Name, Request: req}, func(ctx context.Context) (hutch.Image, error) {
		return next(ctx, s).BuildImage(ctx, req, files, progress)
	})
}

// Builds implements hutch.Images.
func (s *ImageService) Builds(ctx context.Context) ([]hutch.Build, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Builds"}, func(ctx context.Context) ([]hutch.Build, error) {
		return next(ctx, s).Builds(ctx)
	})
}

// BuildLogs implements hutch.Images.
func (s *ImageService) BuildLogs(ctx context.Context, build string, follow bool, out func(hutch.BuildEvent) error) (hutch.Build, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "BuildLogs", Target: build}, func(ctx context.Context) (hutch.Build, error) {
		return next(ctx, s).BuildLogs(ctx, build, follow, out)
	})
}

// DeleteBuild implements hutch.Images.
func (s *ImageService) DeleteBuild(ctx context.Context, build string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteBuild", Target: build}, func(ctx context.Context) error {
		return next(ctx, s).DeleteBuild(ctx, build)
	})
}

// SaveImage implements hutch.Images.
func (s *ImageService) SaveImage(ctx context.Context, image string, w io.Writer) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "SaveImage", Target: image}, func(ctx context.Context) error {
		return next(ctx, s).SaveImage(ctx, image, w)
	})
}

// PushImage implements hutch.Images.
func (s *ImageService) PushImage(ctx context.Context, req hutch.PushRequest, progress func(hutch.Transfer) error) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "PushImage", Target: req.Image, Request: req}, func(ctx context.Context) error {
		return next(ctx, s).PushImage(ctx, req, progress)
	})
}

// TagImage implements hutch.Images.
func (s *ImageService) TagImage(ctx context.Context, image, name string) (hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "TagImage", Target: image + " " + name}, func(ctx context.Context) (hutch.Image, error) {
		return next(ctx, s).TagImage(ctx, image, name)
	})
}

// Image implements hutch.Images.
func (s *ImageService) Image(ctx context.Context, image string) (hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Image", Target: image}, func(ctx context.Context) (hutch.Image, error) {
		return next(ctx, s).Image(ctx, image)
	})
}

// Images implements hutch.Images.
func (s *ImageService) Images(ctx context.Context) ([]hutch.Image, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Images"}, func(ctx context.Context) ([]hutch.Image, error) {
		return next(ctx, s).Images(ctx)
	})
}

// DeleteImage implements hutch.Images.
func (s *ImageService) DeleteImage(ctx context.Context, image string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteImage", Target: image}, func(ctx context.Context) error {
		return next(ctx, s).DeleteImage(ctx, image)
	})
}

// PruneImages implements hutch.Images.
func (s *ImageService) PruneImages(ctx context.Context, req hutch.PruneRequest) (hutch.Pruned, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "PruneImages", Request: req}, func(ctx context.Context) (hutch.Pruned, error) {
		return next(ctx, s).PruneImages(ctx, req)
	})
}

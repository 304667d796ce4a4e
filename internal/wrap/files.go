package wrap

import (
	"context"
	"io"

	"hutch"
	"hutch/internal/verb"
)

// ReadFile implements hutch.Files.
func (s *Service) ReadFile(ctx context.Context, sandbox string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "ReadFile", Sandbox: sandbox, Target: req.Path, Request: req}, func(ctx context.Context) (hutch.FileInfo, error) {
		return next(ctx, s).ReadFile(ctx, sandbox, req, w)
	})
}

// WriteFile implements hutch.Files.
func (s *Service) WriteFile(ctx context.Context, sandbox string, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "WriteFile", Sandbox: sandbox, Target: req.Path, Request: req}, func(ctx context.Context) (hutch.FileInfo, error) {
		return next(ctx, s).WriteFile(ctx, sandbox, req, r)
	})
}

// EditFile implements hutch.Files.
func (s *Service) EditFile(ctx context.Context, sandbox string, req hutch.EditRequest) (hutch.Edit, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "EditFile", Sandbox: sandbox, Target: req.Path, Request: req}, func(ctx context.Context) (hutch.Edit, error) {
		return next(ctx, s).EditFile(ctx, sandbox, req)
	})
}

// Stat implements hutch.Files.
func (s *Service) Stat(ctx context.Context, sandbox, path string) (hutch.FileInfo, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Stat", Sandbox: sandbox, Target: path}, func(ctx context.Context) (hutch.FileInfo, error) {
		return next(ctx, s).Stat(ctx, sandbox, path)
	})
}

// ListFiles implements hutch.Files.
func (s *Service) ListFiles(ctx context.Context, sandbox string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "ListFiles", Sandbox: sandbox, Target: req.Path, Request: req}, func(ctx context.Context) error {
		return next(ctx, s).ListFiles(ctx, sandbox, req, out)
	})
}

// SearchFiles implements hutch.Files.
func (s *Service) SearchFiles(ctx context.Context, sandbox string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "SearchFiles", Sandbox: sandbox, Target: req.Path, Request: req}, func(ctx context.Context) error {
		return next(ctx, s).SearchFiles(ctx, sandbox, req, out)
	})
}

// Mkdir implements hutch.Files.
func (s *Service) Mkdir(ctx context.Context, sandbox, path string, parents bool) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Mkdir", Sandbox: sandbox, Target: path}, func(ctx context.Context) error {
		return next(ctx, s).Mkdir(ctx, sandbox, path, parents)
	})
}

// Move implements hutch.Files.
func (s *Service) Move(ctx context.Context, sandbox, from, to string, replace bool) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Move", Sandbox: sandbox, Target: from + " to " + to}, func(ctx context.Context) error {
		return next(ctx, s).Move(ctx, sandbox, from, to, replace)
	})
}

// Copy implements hutch.Files.
func (s *Service) Copy(ctx context.Context, sandbox, from, to string, replace bool) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Copy", Sandbox: sandbox, Target: from + " to " + to}, func(ctx context.Context) error {
		return next(ctx, s).Copy(ctx, sandbox, from, to, replace)
	})
}

// Delete implements hutch.Files.
func (s *Service) Delete(ctx context.Context, sandbox, path string, recursive bool) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Delete", Sandbox: sandbox, Target: path}, func(ctx context.Context) error {
		return next(ctx, s).Delete(ctx, sandbox, path, recursive)
	})
}

// Chmod implements hutch.Files.
func (s *Service) Chmod(ctx context.Context, sandbox, path string, mode hutch.FileMode) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Chmod", Sandbox: sandbox, Target: path}, func(ctx context.Context) error {
		return next(ctx, s).Chmod(ctx, sandbox, path, mode)
	})
}

// Watch implements hutch.Files.
func (s *Service) Watch(ctx context.Context, sandbox string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Watch", Sandbox: sandbox, Target: req.Path, Request: req}, func(ctx context.Context) error {
		return next(ctx, s).Watch(ctx, sandbox, req, out)
	})
}

// Pack implements hutch.Files.
func (s *Service) Pack(ctx context.Context, sandbox string, req hutch.PackRequest, w io.Writer) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Pack", Sandbox: sandbox, Target: req.Dir, Request: req}, func(ctx context.Context) error {
		return next(ctx, s).Pack(ctx, sandbox, req, w)
	})
}

// Unpack implements hutch.Files.
func (s *Service) Unpack(ctx context.Context, sandbox string, req hutch.UnpackRequest, r io.Reader) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Unpack", Sandbox: sandbox, Target: req.Dir, Request: req}, func(ctx context.Context) error {
		return next(ctx, s).Unpack(ctx, sandbox, req, r)
	})
}

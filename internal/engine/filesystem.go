package engine

import (
	"context"
	"io"
	"io/fs"

	"hutch"
	"hutch/internal/wire"
)

// withFiles checks paths and calls do with the agent of a sandbox in use.
func (e *Engine) withFiles(ctx context.Context, id string, do func(*wire.Client) error, paths ...string) error {
	for _, path := range paths {
		if err := hutch.CheckPath(path); err != nil {
			return err
		}
	}
	return e.ask(ctx, id, do)
}

// ReadFile implements hutch.Service.
func (e *Engine) ReadFile(ctx context.Context, id string, req hutch.ReadRequest, w io.Writer) (info hutch.FileInfo, err error) {
	err = e.withFiles(ctx, id, func(a *wire.Client) error {
		info, err = a.Read(ctx, req, w)
		return err
	}, req.Path)
	return info, err
}

// WriteFile implements hutch.Service.
func (e *Engine) WriteFile(ctx context.Context, id string, req hutch.WriteRequest, r io.Reader) (info hutch.FileInfo, err error) {
	err = e.withFiles(ctx, id, func(a *wire.Client) error {
		info, err = a.Write(ctx, req, r)
		return err
	}, req.Path)
	return info, err
}

// EditFile implements hutch.Service.
func (e *Engine) EditFile(ctx context.Context, id string, req hutch.EditRequest) (edit hutch.Edit, err error) {
	err = e.withFiles(ctx, id, func(a *wire.Client) error {
		edit, err = a.Edit(ctx, req)
		return err
	}, req.Path)
	return edit, err
}

// Stat implements hutch.Service.
func (e *Engine) Stat(ctx context.Context, id, path string) (info hutch.FileInfo, err error) {
	err = e.withFiles(ctx, id, func(a *wire.Client) error {
		info, err = a.Stat(ctx, path)
		return err
	}, path)
	return info, err
}

// ListFiles implements hutch.Service.
func (e *Engine) ListFiles(ctx context.Context, id string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Files(ctx, req, out) }, req.Path)
}

// SearchFiles implements hutch.Service.
func (e *Engine) SearchFiles(ctx context.Context, id string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Search(ctx, req, out) }, req.Path)
}

// Mkdir implements hutch.Service.
func (e *Engine) Mkdir(ctx context.Context, id, path string, parents bool) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Mkdir(ctx, path, parents) }, path)
}

// Move implements hutch.Service.
func (e *Engine) Move(ctx context.Context, id, from, to string, replace bool) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Move(ctx, from, to, replace) }, from, to)
}

// Copy implements hutch.Service.
func (e *Engine) Copy(ctx context.Context, id, from, to string, replace bool) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Copy(ctx, from, to, replace) }, from, to)
}

// Delete implements hutch.Service.
func (e *Engine) Delete(ctx context.Context, id, path string, recursive bool) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Delete(ctx, path, recursive) }, path)
}

// Chmod implements hutch.Service.
func (e *Engine) Chmod(ctx context.Context, id, path string, mode fs.FileMode) error {
	if mode&^fs.ModePerm != 0 {
		return hutch.Errorf(hutch.Invalid, "mode is %v: use permissions alone, 0 to 0777", mode).With("field", "mode")
	}
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Chmod(ctx, path, mode) }, path)
}

// Watch implements hutch.Service.
func (e *Engine) Watch(ctx context.Context, id string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Watch(ctx, req, out) }, req.Path)
}

// Pack implements hutch.Service.
func (e *Engine) Pack(ctx context.Context, id string, req hutch.PackRequest, w io.Writer) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Pack(ctx, req, w) }, req.Dir)
}

// Unpack implements hutch.Service.
func (e *Engine) Unpack(ctx context.Context, id string, req hutch.UnpackRequest, r io.Reader) error {
	return e.withFiles(ctx, id, func(a *wire.Client) error { return a.Unpack(ctx, req, r) }, req.Dir)
}

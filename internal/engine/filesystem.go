package engine

import (
	"cmp"
	"context"
	"io"

	"hutch"
	"hutch/internal/saved"
	"hutch/internal/wire"
)

// files are the verbs of the files of sandboxes.
type files struct{ life *lifecycle }

// withFiles calls do with the agent of a sandbox, during a use of the sandbox. refused is the error of the request's
// Check; unless it is nil, do is not called. The context of do is for the request's user.
func (f files) withFiles(ctx context.Context, id string, refused error, do func(context.Context, *wire.Client) error) error {
	user := hutch.FileUser(ctx)
	if err := cmp.Or(refused, hutch.CheckUser(user)); err != nil {
		return err
	}
	return f.life.ask(ctx, id, func(a *wire.Client) error { return do(wire.AsUser(ctx, user), a) })
}

// PackWritten packs the files that a sandbox has added to or changed in its image, as a tar archive. The bytes of the
// archive come from inside the sandbox.
func (f files) PackWritten(ctx context.Context, id string, w io.Writer) error {
	s, agent, err := f.life.use(ctx, id)
	if err != nil {
		return err
	}
	defer s.EndUse()
	sb := s.Record().Sandbox
	return saved.Pack(ctx, agent, sb.Image, saved.Bounded(w, saved.Most(sb.Limits)))
}

// UnpackWritten writes files over the image of a sandbox, from a tar archive.
func (f files) UnpackWritten(ctx context.Context, id string, r io.Reader) error {
	return f.life.ask(ctx, id, func(a *wire.Client) error { return saved.UnpackStream(ctx, a, r) })
}

// ListWritten writes the names of all files in a sandbox with an image, each followed by a zero byte.
func (f files) ListWritten(ctx context.Context, id string, w io.Writer) error {
	return f.life.ask(ctx, id, func(a *wire.Client) error { return saved.List(ctx, a, w) })
}

// RunProgram runs a program without a shell until it or ctx ends, and returns its exit code.
func (c commands) RunProgram(ctx context.Context, id string, argv, env []string, dir string, out func(hutch.Output) error) (int, error) {
	s, agent, err := c.life.use(ctx, id)
	if err != nil {
		return noExit, err
	}
	defer s.EndUse()
	exit, err := agent.Run(ctx, wire.Start{ID: hutch.NewID("run"), Argv: argv, Env: env, Dir: dir}, nil, out)
	if err != nil {
		return noExit, c.life.diagnose(ctx, s, agent, err)
	}
	if exit.Memory {
		return exit.Code, hutch.Errorf(hutch.Exhausted, "the sandbox has no memory left: give it more with --memory").With("limit", "memory")
	}
	return exit.Code, nil
}

// ReadFile implements hutch.Service.
func (f files) ReadFile(ctx context.Context, id string, req hutch.ReadRequest, w io.Writer) (info hutch.FileInfo, err error) {
	err = f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error {
		info, err = a.Read(ctx, req, w)
		return err
	})
	return info, err
}

// WriteFile implements hutch.Service.
func (f files) WriteFile(ctx context.Context, id string, req hutch.WriteRequest, r io.Reader) (info hutch.FileInfo, err error) {
	err = f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error {
		info, err = a.Write(ctx, req, r)
		return err
	})
	return info, err
}

// EditFile implements hutch.Service.
func (f files) EditFile(ctx context.Context, id string, req hutch.EditRequest) (edit hutch.Edit, err error) {
	err = f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error {
		edit, err = a.Edit(ctx, req)
		return err
	})
	return edit, err
}

// Stat implements hutch.Service.
func (f files) Stat(ctx context.Context, id, path string) (info hutch.FileInfo, err error) {
	err = f.withFiles(ctx, id, hutch.CheckPath(path), func(ctx context.Context, a *wire.Client) error {
		info, err = a.Stat(ctx, path)
		return err
	})
	return info, err
}

// ListFiles implements hutch.Service.
func (f files) ListFiles(ctx context.Context, id string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error { return a.Files(ctx, req, out) })
}

// SearchFiles implements hutch.Service.
func (f files) SearchFiles(ctx context.Context, id string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	return f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error { return a.Search(ctx, req, out) })
}

// Mkdir implements hutch.Service.
func (f files) Mkdir(ctx context.Context, id, path string, parents bool) error {
	return f.withFiles(ctx, id, hutch.CheckPath(path), func(ctx context.Context, a *wire.Client) error { return a.Mkdir(ctx, path, parents) })
}

// Move implements hutch.Service.
func (f files) Move(ctx context.Context, id, from, to string, replace bool) error {
	return f.withFiles(ctx, id, cmp.Or(hutch.CheckPath(from), hutch.CheckPath(to)), func(ctx context.Context, a *wire.Client) error { return a.Move(ctx, from, to, replace) })
}

// Copy implements hutch.Service.
func (f files) Copy(ctx context.Context, id, from, to string, replace bool) error {
	return f.withFiles(ctx, id, cmp.Or(hutch.CheckPath(from), hutch.CheckPath(to)), func(ctx context.Context, a *wire.Client) error { return a.Copy(ctx, from, to, replace) })
}

// Delete implements hutch.Service.
func (f files) Delete(ctx context.Context, id, path string, recursive bool) error {
	return f.withFiles(ctx, id, hutch.CheckPath(path), func(ctx context.Context, a *wire.Client) error { return a.Delete(ctx, path, recursive) })
}

// Chmod implements hutch.Service.
func (f files) Chmod(ctx context.Context, id, path string, mode hutch.FileMode) error {
	return f.withFiles(ctx, id, cmp.Or(mode.Check(), hutch.CheckPath(path)), func(ctx context.Context, a *wire.Client) error { return a.Chmod(ctx, path, mode) })
}

// Watch implements hutch.Service.
func (f files) Watch(ctx context.Context, id string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error { return a.Watch(ctx, req, out) })
}

// Pack implements hutch.Service.
func (f files) Pack(ctx context.Context, id string, req hutch.PackRequest, w io.Writer) error {
	return f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error { return a.Pack(ctx, req, w) })
}

// Unpack implements hutch.Service.
func (f files) Unpack(ctx context.Context, id string, req hutch.UnpackRequest, r io.Reader) error {
	return f.withFiles(ctx, id, req.Check(), func(ctx context.Context, a *wire.Client) error { return a.Unpack(ctx, req, r) })
}

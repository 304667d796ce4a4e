package fakeservice

import (
	"context"
	"io"

	"hutch"
)

// files returns the result of OnFiles, if the sandbox exists.
func (s *Service) files(ctx context.Context, sandbox string) (hutch.Files, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return nil, err
	}
	if s.OnFiles == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "the script has no files")
	}
	return s.OnFiles, nil
}

func (s *Service) ReadFile(ctx context.Context, sandbox string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return hutch.FileInfo{}, err
	}
	return f.ReadFile(ctx, sandbox, req, w)
}

func (s *Service) WriteFile(ctx context.Context, sandbox string, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return hutch.FileInfo{}, err
	}
	return f.WriteFile(ctx, sandbox, req, r)
}

func (s *Service) EditFile(ctx context.Context, sandbox string, req hutch.EditRequest) (hutch.Edit, error) {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return hutch.Edit{}, err
	}
	return f.EditFile(ctx, sandbox, req)
}

func (s *Service) Stat(ctx context.Context, sandbox, path string) (hutch.FileInfo, error) {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return hutch.FileInfo{}, err
	}
	return f.Stat(ctx, sandbox, path)
}

func (s *Service) ListFiles(ctx context.Context, sandbox string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.ListFiles(ctx, sandbox, req, out)
}

func (s *Service) SearchFiles(ctx context.Context, sandbox string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.SearchFiles(ctx, sandbox, req, out)
}

func (s *Service) Mkdir(ctx context.Context, sandbox, path string, parents bool) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Mkdir(ctx, sandbox, path, parents)
}

func (s *Service) Move(ctx context.Context, sandbox, from, to string, replace bool) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Move(ctx, sandbox, from, to, replace)
}

func (s *Service) Copy(ctx context.Context, sandbox, from, to string, replace bool) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Copy(ctx, sandbox, from, to, replace)
}

func (s *Service) Delete(ctx context.Context, sandbox, path string, recursive bool) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Delete(ctx, sandbox, path, recursive)
}

func (s *Service) Chmod(ctx context.Context, sandbox, path string, mode hutch.FileMode) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Chmod(ctx, sandbox, path, mode)
}

func (s *Service) Watch(ctx context.Context, sandbox string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Watch(ctx, sandbox, req, out)
}

func (s *Service) Pack(ctx context.Context, sandbox string, req hutch.PackRequest, w io.Writer) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Pack(ctx, sandbox, req, w)
}

func (s *Service) Unpack(ctx context.Context, sandbox string, req hutch.UnpackRequest, r io.Reader) error {
	f, err := s.files(ctx, sandbox)
	if err != nil {
		return err
	}
	return f.Unpack(ctx, sandbox, req, r)
}

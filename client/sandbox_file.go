package client

import (
	"bytes"
	"context"
	"io"

	"hutch"
)

// ReadFile returns the content of a file. For large files, [Client.ReadFile] copies to a writer.
func (s *Sandbox) ReadFile(ctx context.Context, path string) ([]byte, error) {
	var b bytes.Buffer
	_, err := s.client.ReadFile(ctx, s.ID, hutch.ReadRequest{Path: path}, &b)
	return b.Bytes(), err
}

// WriteFile creates a file with everything that content returns, completely or not at all, and creates missing folders
// above it.
func (s *Sandbox) WriteFile(ctx context.Context, path string, content io.Reader) (hutch.FileInfo, error) {
	return s.client.WriteFile(ctx, s.ID, hutch.WriteRequest{Path: path, Parents: true}, content)
}

// EditFile replaces text that is in a file exactly once.
func (s *Sandbox) EditFile(ctx context.Context, path, before, after string) (hutch.Edit, error) {
	return s.client.EditFile(ctx, s.ID, hutch.EditRequest{Path: path, Old: before, New: after})
}

// ListFiles returns the content of a folder.
func (s *Sandbox) ListFiles(ctx context.Context, path string) ([]hutch.FileInfo, error) {
	var list []hutch.FileInfo
	err := s.client.ListFiles(ctx, s.ID, hutch.ListRequest{Path: path, Hidden: true}, func(f hutch.FileInfo) error {
		list = append(list, f)
		return nil
	})
	return list, err
}

// Delete removes a file, or a folder with everything in it.
func (s *Sandbox) Delete(ctx context.Context, path string) error {
	return s.client.Delete(ctx, s.ID, path, true)
}

// Watch passes changes below a path to out, until ctx is done or out fails.
func (s *Sandbox) Watch(ctx context.Context, path string, out func(hutch.FileEvent) error) error {
	return s.client.Watch(ctx, s.ID, hutch.WatchRequest{Path: path, Recursive: true}, out)
}

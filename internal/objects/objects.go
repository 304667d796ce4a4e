// Package objects keeps streams of bytes by key: in a folder of this machine, or in a bucket of an S3-compatible service.
// Backups and the images of sleeping sandboxes are such objects.
package objects

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hutch/internal/durable"
)

// Store keeps objects by key: names of letters, digits, dots and hyphens, with slashes between them. Its methods are
// safe for concurrent use.
type Store interface {
	// Put stores everything that r returns under a key or, on any error, nothing.
	Put(ctx context.Context, key string, r io.Reader) error

	// Get opens an object. The error is fs.ErrNotExist when the object does not exist.
	Get(ctx context.Context, key string) (io.ReadCloser, error)

	// List returns the keys that begin with prefix.
	List(ctx context.Context, prefix string) ([]string, error)

	// Delete removes an object. A missing object is not an error.
	Delete(ctx context.Context, key string) error
}

// Folder is a store in a folder of this machine that no other process writes to.
type Folder string

const half = ".new" // the end of the name of an incomplete file

// OpenFolder opens a folder, and creates it if it is missing. It removes incomplete files of a killed server.
func OpenFolder(path string) (Folder, error) {
	f := Folder(path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return f, err
	}
	keys, err := f.List(context.Background(), "")
	for _, key := range keys {
		if strings.HasSuffix(key, half) {
			err = errors.Join(err, f.Delete(context.Background(), key))
		}
	}
	return f, err
}

// Put implements Store.
func (f Folder) Put(_ context.Context, key string, r io.Reader) error {
	return durable.Explained(f.put(key, r), string(f))
}

func (f Folder) put(key string, r io.Reader) error {
	path := filepath.Join(string(f), filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	w, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+half) // two servers can write the same object
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err == nil {
		err = os.Rename(w.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(w.Name()))
	}
	return durable.Sync(filepath.Dir(path))
}

// Get implements Store.
func (f Folder) Get(_ context.Context, key string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(f), filepath.FromSlash(key)))
}

// List implements Store.
func (f Folder) List(_ context.Context, prefix string) (keys []string, err error) {
	root := string(f)
	if dir, _, ok := strings.Cut(prefix, "/"); ok {
		root = filepath.Join(root, dir)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		key, err := filepath.Rel(string(f), path)
		if key = filepath.ToSlash(key); strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the store is still empty
	}
	return keys, err
}

// Delete implements Store.
func (f Folder) Delete(_ context.Context, key string) error {
	path := filepath.Join(string(f), filepath.FromSlash(key))
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

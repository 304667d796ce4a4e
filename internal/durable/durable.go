// Package durable writes small files that no other user can read. Each is written completely or not at all, even if the
// machine loses power. It also syncs files that other code wrote, and recognizes a full disk.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Create writes a new file; the error is fs.ErrExist if it exists.
func Create(path string, content []byte) error { return write(path, content, os.Link) }

// Replace writes a file, and replaces an existing one.
func Replace(path string, content []byte) error { return write(path, content, os.Rename) }

func write(path string, content []byte, name func(from, to string) error) error {
	dir := filepath.Dir(path)
	return Explained(writeIn(dir, path, content, name), dir)
}

// writeIn writes a file under a temporary name, and then renames it.
func writeIn(dir, path string, content []byte, name func(from, to string) error) error {
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := name(f.Name(), path); err != nil {
		return err
	}
	return Sync(dir)
}

// Sync syncs a file, or the names in a folder, to disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Package durable writes small files that nobody else may read, each there as a
// whole or not at all, also after the machine has lost its power. It brings to
// disk what others wrote, and knows when a disk is full.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Create writes a file that was not there; the error is fs.ErrExist when it is.
func Create(path string, content []byte) error { return write(path, content, os.Link) }

// Replace writes a file, in place of the one that may be there.
func Replace(path string, content []byte) error { return write(path, content, os.Rename) }

func write(path string, content []byte, name func(from, to string) error) error {
	dir := filepath.Dir(path)
	return Explained(writeIn(dir, path, content, name), dir)
}

// writeIn writes a file under another name, and then gives it its own.
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

// Sync brings a file, or the names in a folder, to disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

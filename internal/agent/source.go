package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hutch"
)

// tempDir is where source files are. Every process in the sandbox can write to it.
const tempDir = "/tmp"

// writeSource writes text to a file in a new folder that only the user can enter, and returns the file's path. The user
// can replace every name there, so all steps have only the user's rights: a link can lead only to files that the user
// can reach.
func (u user) writeSource(text, name string) (path string, err error) {
	if name == "" || len(name) > 100 || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return "", hutch.Errorf(hutch.Invalid, "a source file cannot be called %s", quote(name))
	}
	err = u.do(func() error {
		dir, err := os.MkdirTemp(tempDir, "hutch-")
		if err != nil {
			return err
		}
		path = filepath.Join(dir, name)
		if err := writeNew(path, text); err != nil {
			os.RemoveAll(dir)
			return err
		}
		return nil
	})
	if err != nil {
		return "", noRoom(err)
	}
	return path, nil
}

// writeNew writes a file that must not exist yet.
func writeNew(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// removeSource removes the folder of a source file and its content, with the rights of the user. Files that the user
// is not allowed to remove stay.
func (u user) removeSource(dir string) {
	if dir != "" {
		u.do(func() error { return os.RemoveAll(dir) })
	}
}

func noRoom(err error) error {
	return hutch.Errorf(hutch.Exhausted, "the source cannot be written to %s: is the sandbox's disk full?", tempDir).Because(fmt.Errorf("write source: %w", err))
}

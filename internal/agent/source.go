package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hutch"
	"hutch/internal/linux/spawn"
)

// tempDir is where source files live. Everybody in the sandbox can write to it.
const tempDir = "/tmp"

// writeSource writes text to a file in a new folder that only user can enter,
// and returns the file's path. Both change hands last and by descriptor: until
// then nobody else can reach them, and no name is followed after.
func writeSource(text, name string, user *spawn.User) (path string, err error) {
	if name == "" || len(name) > 100 || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return "", hutch.Errorf(hutch.Invalid, "a source file cannot be called %s", quote(name))
	}
	dir, err := os.MkdirTemp(tempDir, "hutch-")
	if err != nil {
		return "", noRoom(err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
			err = noRoom(err)
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		return "", err
	}
	if user == nil {
		return filepath.Join(dir, name), nil
	}
	if err := file.Chown(user.UID, user.GID); err != nil {
		return "", err
	}
	self, err := root.Open(".")
	if err != nil {
		return "", err
	}
	defer self.Close()
	return filepath.Join(dir, name), self.Chown(user.UID, user.GID)
}

func noRoom(err error) error {
	return hutch.Errorf(hutch.Exhausted, "the source cannot be written to %s: is the sandbox's disk full?", tempDir).Because(fmt.Errorf("write source: %w", err))
}

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The files with the host name have only the new name after each change, whichever is longer.
func TestOverwrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	for _, text := range []string{"spare\n", strings.Repeat("a longer name ", 20) + "\n", "short\n", "short\n", ""} {
		if err := overwrite(path, text); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v instead of %q", got, err, text)
		}
	}
}

func TestOverwriteChangesOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	target, link, pipe := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that the pipe can be opened to write
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, path := range []string{link, pipe, dir} {
		if err := overwrite(path, "name\n"); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "mine" {
		t.Errorf("the target of the link is %q, %v", got, err)
	}
}

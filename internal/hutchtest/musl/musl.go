// Package musl makes the content of an image without glibc, as Alpine's images are: musl's loader, a Korn shell, and a
// program that musl-gcc compiles. They come from the packages musl-tools and mksh of this machine.
package musl

import (
	"archive/tar"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed testdata/tool.c
var tool []byte

// Missing returns a package that the image needs and this machine lacks; "" if none is missing.
func Missing() string {
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		return "musl-tools"
	}
	if _, err := only("/usr/lib/*-linux-musl*/bin/mksh"); err != nil {
		return "mksh"
	}
	return ""
}

// Write writes the image: a loader that is musl's only library, /bin/sh, /usr/bin/tool, and a user app.
func Write(w *tar.Writer) error {
	loader, err := only("/lib/ld-musl-*.so.1")
	if err != nil {
		return err
	}
	shell, err := only("/usr/lib/*-linux-musl*/bin/mksh") // statically linked with musl
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hutch-musl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, program := filepath.Join(dir, "tool.c"), filepath.Join(dir, "tool")
	if err := os.WriteFile(source, tool, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("musl-gcc", "-O1", "-Wall", "-Werror", "-o", program, source).CombinedOutput(); err != nil {
		return fmt.Errorf("musl-gcc: %w\n%s", err, out)
	}
	users := filepath.Join(dir, "passwd")
	if err := os.WriteFile(users, []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1500:1501:app:/home/app:/bin/sh\n"), 0o600); err != nil {
		return err
	}
	for _, f := range []struct {
		path, from string
		mode       int64
	}{
		{"lib/" + filepath.Base(loader), loader, 0o755},
		{"bin/sh", shell, 0o755},
		{"usr/bin/tool", program, 0o755},
		{"etc/passwd", users, 0o644},
	} {
		content, err := os.ReadFile(f.from)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(content))})
		}
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// only returns the one file that matches a pattern.
func only(pattern string) (string, error) {
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) != 1 {
		return "", fmt.Errorf("%s matches %q, and not one file", pattern, list)
	}
	return list[0], nil
}

// Package debian makes the content of an image without a network: a Debian with Python, from the packages that are
// installed on this machine.
package debian

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Write writes a Debian with Python: the files of this machine's own packages and their dependencies.
func Write(w *tar.Writer) error { return WriteWith(w) }

// WriteWith writes a Debian with Python and more packages. dpkg in the image knows these packages, and apt has no
// sources.
func WriteWith(w *tar.Writer, more ...string) error {
	names, err := installed(append([]string{"base-files", "bash", "coreutils", "grep", "python3", "ca-certificates"}, more...))
	if err != nil {
		return err
	}
	if err := addFiles(w, names); err != nil {
		return err
	}
	status, err := exec.Command("dpkg", append([]string{"--status"}, names...)...).Output() // fails for virtual packages, but still prints the others
	if len(status) == 0 {
		return fmt.Errorf("dpkg: %w", err)
	}
	for _, f := range []struct {
		path, content string
		mode          int64
		gid           int
	}{
		{"etc/passwd", "root:x:0:0:root:/root:/bin/bash\n", 0o644, 0},
		{"etc/shadow", "root:*:1::::::\n", 0o640, 42},
		{"var/lib/dpkg/status", string(status), 0o644, 0},
		{"usr/local/bin/greet", "#!/usr/bin/python3\nprint('hello from the image')\n", 0o755, 0},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.path, Mode: f.mode, Gid: f.gid, Size: int64(len(f.content))}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			return err
		}
	}
	return addPath(w, "/etc/ssl/certs/ca-certificates.crt")
}

// WriteArchive writes an image with a name, in the format of docker save. The image has one layer, which fill writes.
func WriteArchive(to io.Writer, name string, fill func(*tar.Writer) error) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(fill(w), w.Close()); err != nil {
		return err
	}
	config, _ := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	manifest, _ := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	w = tar.NewWriter(to)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer.Bytes()}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.content)), Mode: 0o644}); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// WriteShell writes a Debian that has little more than a shell.
func WriteShell(w *tar.Writer) error {
	for _, link := range []string{"bin", "lib", "lib64"} {
		if err := w.WriteHeader(&tar.Header{Name: link, Typeflag: tar.TypeSymlink, Linkname: "usr/" + link, Mode: 0o777}); err != nil {
			return err
		}
	}
	passwd := "root:x:0:0:root:/root:/bin/sh\n"
	if err := w.WriteHeader(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(passwd))}); err != nil {
		return err
	}
	if _, err := io.WriteString(w, passwd); err != nil {
		return err
	}
	names, err := installed([]string{"dash", "coreutils"})
	if err != nil {
		return err
	}
	return addFiles(w, names, "/bin", "/lib", "/lib64")
}

// addFiles writes the files of packages, except those in there: Docker's engine refuses a path that occurs twice.
func addFiles(w *tar.Writer, names []string, there ...string) error {
	out, err := exec.Command("dpkg", append([]string{"-L"}, names...)...).Output() // fails for virtual packages
	if len(out) == 0 {
		return fmt.Errorf("dpkg: %w", err)
	}
	paths := strings.Fields(string(out))
	for i, path := range paths {
		paths[i] = merged(path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if slices.Contains(there, path) {
			continue
		}
		if err := addPath(w, path); err != nil {
			return err
		}
	}
	return nil
}

// installed lists packages of this machine, and their dependencies.
func installed(names []string) (list []string, err error) {
	out, err := exec.Command("apt-cache", append([]string{"depends", "--recurse", "--installed", "--no-recommends", "--no-suggests", "--no-conflicts",
		"--no-breaks", "--no-replaces", "--no-enhances"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); name != "" && line[0] != ' ' && !strings.HasPrefix(name, "<") {
			name, _, _ = strings.Cut(name, ":") // the name of a dependency can end with an architecture, such as ":any"
			list = append(list, name)
		}
	}
	slices.Sort(list) // dpkg refuses a status that occurs twice
	return slices.Compact(list), nil
}

// merged returns the path of a package's file on a system with a merged /usr, where /bin and others are links.
func merged(path string) string {
	for _, link := range []string{"/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"} {
		if strings.HasPrefix(path, link+"/") {
			return "/usr" + path
		}
	}
	return path
}

// WriteTree writes a file of this machine, or a folder and everything in it.
func WriteTree(w *tar.Writer, path string) error {
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return addPath(w, path)
	})
}

// addPath writes a file of this machine.
func addPath(w *tar.Writer, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&(fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return nil
	}
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = strings.TrimPrefix(path, "/")
	if info.IsDir() {
		h.Name += "/"
	}
	if h.Name == "./" {
		return nil
	}
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

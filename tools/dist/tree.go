package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// file is a file to ship.
type file struct {
	content []byte
	mode    fs.FileMode
}

// tree maps paths, relative to a prefix such as /usr, to files.
type tree map[string]file

// pages returns the man pages and the completions of a hutch.
func pages(hutch string, at time.Time) (tree, error) {
	dir, err := os.MkdirTemp("", "hutch-man-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	man := exec.Command(hutch, "man", dir)
	man.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", at.Unix()))
	if out, err := man.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("write man pages: %w: %s", err, out)
	}
	all := tree{}
	list, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(list) == 0 {
		return nil, fmt.Errorf("there are no man pages in %s: %v", dir, err)
	}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all["share/man/man1/"+filepath.Base(path)+".gz"] = file{zip(text), 0o644}
	}
	for shell, path := range map[string]string{
		"bash": "share/bash-completion/completions/hutch", "zsh": "share/zsh/site-functions/_hutch", "fish": "share/fish/vendor_completions.d/hutch.fish",
	} {
		text, err := exec.Command(hutch, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("print the completion of %s: %w", shell, err)
		}
		all[path] = file{text, 0o644}
	}
	return all, nil
}

// shipped returns the files of one architecture.
func shipped(folder string, pages tree) (tree, error) {
	all := maps.Clone(pages)
	from := map[string]string{
		"lib/systemd/system/hutch.service": "deploy/hutch.service", "share/hutch/hutch.yaml": "deploy/hutch.yaml",
		"share/doc/hutch/README.md": "README.md", "share/doc/hutch/CHANGELOG.md": "CHANGELOG.md", "share/doc/hutch/copyright": "LICENSE",
	}
	for path, source := range from {
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		all[path] = file{content, 0o644}
	}
	for _, name := range programs {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		all["bin/"+name] = file{content, 0o755}
	}
	return all, nil
}

// zip compresses a text without a date.
func zip(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level exists
	w.Write(text)                                         // into memory
	w.Close()
	return b.Bytes()
}

// archive writes a tar archive of files in one folder, with install.sh.
func (r release) archive(path, folder string, files tree) error {
	script, err := os.ReadFile("deploy/install.sh")
	if err != nil {
		return err
	}
	all := maps.Clone(files)
	all["install.sh"] = file{script, 0o755}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		h := &tar.Header{Name: folder + "/" + name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: r.time, Uname: "root", Gname: "root", Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	z := gzip.NewWriter(out)
	if _, err := b.WriteTo(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Close()
}

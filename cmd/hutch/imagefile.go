package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hutch"
)

// openArchive opens the input of `hutch image load`: a file, a folder as a tar stream, or in.
func openArchive(in *os.File, path string) (io.ReadCloser, error) {
	for _, kind := range []string{"oci:", "docker-archive:", "oci-archive:"} {
		path = strings.TrimPrefix(path, kind)
	}
	if path == "" || path == "-" {
		if isTerminal(in) {
			return nil, usageError{fmt.Errorf("an archive is not for a terminal: name a file or a folder, or pipe the archive in")}
		}
		return io.NopCloser(in), nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, hutch.Errorf(hutch.NotFound, "%v: name an archive, or the folder of an OCI layout", err)
	}
	if !info.IsDir() {
		return os.Open(path)
	}
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		err := t.AddFS(os.DirFS(path))
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// intoFile writes a file that gets its name only when it is complete.
func intoFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "%v: choose another file", err)
	}
	defer os.Remove(f.Name()) // it was renamed by then, or is incomplete
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// transfers shows the progress of an image's layers: one line that changes on a terminal, otherwise a line for each
// complete layer.
type transfers struct {
	w        io.Writer
	live     bool
	layers   map[string]hutch.Transfer
	shown    time.Time
	anything bool
}

func newTransfers(w io.Writer, quiet bool) *transfers {
	f, ok := w.(*os.File)
	if quiet {
		w = io.Discard
	}
	return &transfers{w: w, live: ok && !quiet && isTerminal(f), layers: map[string]hutch.Transfer{}}
}

// show shows the state of a layer.
func (p *transfers) show(t hutch.Transfer) error {
	p.layers[t.Layer] = t
	switch {
	case p.live && time.Since(p.shown) > 100*time.Millisecond:
		p.shown, p.anything = time.Now(), true
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.line())
	case !p.live && (t.State == "done" || t.State == "present"):
		fmt.Fprintf(p.w, "%s %s %s\n", shortDigest(t.Layer), t.State, size(t.Total))
	}
	return nil
}

func (p *transfers) line() string {
	var done, total int64
	whole := 0
	for _, t := range p.layers {
		done, total = done+t.Done, total+t.Total
		if t.State == "done" || t.State == "present" {
			whole++
		}
	}
	return fmt.Sprintf("%d of %d layers, %s of %s", whole, len(p.layers), size(done), size(total))
}

func (p *transfers) end() {
	if p.anything {
		fmt.Fprintf(p.w, "\r\x1b[K")
	}
}

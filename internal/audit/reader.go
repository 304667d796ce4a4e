package audit

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// reader reads the lines of a folder in order, through all its files. At the end it can be called again later, when
// more lines have been written.
type reader struct {
	dir  string
	name string // the present file; before the first read, the file before the first one to read
	at   int64  // offset of the next line
	f    *os.File
	buf  *bufio.Reader
	last bool // this file is complete, because there is a later one
}

// readFrom starts at an offset in a file or, if the file is missing, at the beginning of the next one.
func readFrom(dir, name string, at int64) (*reader, error) {
	r := &reader{dir: dir, name: name, at: at, buf: bufio.NewReaderSize(nil, maxLine)}
	if name == "" {
		return r, nil
	}
	err := r.open(name)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return r, err
}

func (r *reader) open(name string) error {
	f, err := os.Open(filepath.Join(r.dir, name))
	if err != nil {
		return err
	}
	r.name, r.f, r.last = name, f, false
	return r.rewind()
}

// rewind goes back to the beginning of the next line.
func (r *reader) rewind() error {
	_, err := r.f.Seek(r.at, io.SeekStart)
	r.buf.Reset(r.f)
	return err
}

func (r *reader) Close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}

// next returns the next line with its newline, valid until the next call, or io.EOF. A line that is too long, or
// broken off in the middle of the log, is returned in pieces.
func (r *reader) next() ([]byte, error) {
	for {
		line, err := []byte(nil), io.EOF
		if r.f != nil {
			line, err = r.buf.ReadSlice('\n')
		}
		whole := err == nil || errors.Is(err, bufio.ErrBufferFull) || r.last && len(line) > 0
		switch {
		case whole:
			r.at += int64(len(line))
			return line, nil
		case err != io.EOF:
			return nil, err
		}
		if err := r.nextFile(); err != nil {
			return nil, err
		}
	}
}

// nextFile switches to the next file, or returns io.EOF after the last one. After it has seen the next file, it reads
// the old one once more, because only then is the old one complete.
func (r *reader) nextFile() error {
	later, err := r.later()
	if err != nil {
		return err
	}
	switch {
	case r.f != nil && (later == "" || !r.last):
		r.last = later != ""
		if err := r.rewind(); err != nil || r.last {
			return err
		}
		return io.EOF
	case later == "":
		return io.EOF
	case r.f != nil:
		r.f.Close()
		r.f = nil
	}
	r.at = 0
	return r.open(later)
}

// later returns the file after this one, or "".
func (r *reader) later() (string, error) {
	all, err := files(r.dir)
	for _, path := range all {
		if name := filepath.Base(path); name > r.name {
			return name, err
		}
	}
	return "", err
}

// fileOf returns the file with the line of a given number: the last file whose first line is not after that line.
func fileOf(dir string, seq int64) (string, error) {
	all, err := files(dir)
	for _, path := range slices.Backward(all) {
		first, err := firstOf(path)
		if err == nil && first.seq <= seq {
			return filepath.Base(path), nil
		}
	}
	return "", err
}

func firstOf(path string) (link, error) {
	f, err := os.Open(path)
	if err != nil {
		return link{}, err
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, maxLine).ReadSlice('\n')
	if err != nil {
		return link{}, err
	}
	l, _, err := parseLink(line)
	return l, err
}

// lastOf returns the last whole line of a file.
func lastOf(path string) (last link, err error) {
	f, err := os.Open(path)
	if err != nil {
		return last, err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return last, err
	}
	if _, err := f.Seek(max(0, end-2*maxLine), io.SeekStart); err != nil {
		return last, err
	}
	err = errMalformed
	for s := bufio.NewReaderSize(f, maxLine); ; {
		line, rerr := s.ReadSlice('\n')
		if rerr != nil {
			return last, err
		}
		if l, _, lerr := parseLink(line); lerr == nil {
			last, err = l, nil
		}
	}
}

package sftpfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/pkg/sftp"

	"hutch"
)

const (
	// ahead is how far an early write can be ahead.
	ahead = 2 << 20
	// maxEarly is how many early writes can wait: each takes some memory in addition to its bytes, which can be few.
	maxEarly = 256
)

// umask is removed from the permissions of new files, as a shell does.
const umask = 0o022

// writer writes a file at offsets.
type writer struct {
	s       *server
	name    string // path as the client names it
	path    string // its target
	mode    hutch.FileMode
	release func()

	mu      sync.Mutex
	fresh   bool // the file is written from its beginning
	append  bool // data is written at the end, whatever its offset
	size    int64
	next    int64            // position of the stream
	known   bool             // next is known; otherwise the first write sets it
	early   map[int64][]byte // data that arrived too early
	held    int              // bytes of early
	stream  *io.PipeWriter   // nil for none
	ended   chan error       // of the stream
	err     error
	changes []attributes
	closed  bool
}

// Filewrite implements sftp.FileWriter.
func (s *server) Filewrite(r *sftp.Request) (io.WriterAt, error) { return s.openWriter(r) }

func (s *server) openWriter(r *sftp.Request) (*writer, error) {
	flags := r.Pflags()
	info, err := s.follow(r.Filepath)
	exists := err == nil
	switch {
	case err != nil && (!errors.Is(err, hutch.NotFound) || !flags.Creat):
		return nil, status(err)
	case exists && info.Type != hutch.RegularFile:
		return nil, status(hutch.Errorf(hutch.Conflict, "%.200q is not a file", r.Filepath))
	case exists && flags.Excl && flags.Creat:
		return nil, status(hutch.Errorf(hutch.Conflict, "%.200q exists", r.Filepath))
	}
	w := &writer{s: s, name: r.Filepath, path: r.Filepath, early: map[int64][]byte{}}
	if exists {
		w.path, w.size = info.Path, info.Size
	} else {
		w.mode = newMode(r.Attrs)
	}
	if w.release, err = s.take(ahead); err != nil {
		return nil, err
	}
	if !exists || flags.Trunc {
		w.fresh, w.known, w.size = true, true, 0
		w.begin(0)
	} else if flags.Append {
		w.append = true
	}
	s.mu.Lock()
	s.writers[w.name] = w
	s.mu.Unlock()
	return w, nil
}

// newMode returns the permissions that a client requests for a new file, or 0. The library passes on the attributes of
// an open without saying which they are: four bytes can only be permissions.
func newMode(attributes []byte) hutch.FileMode {
	if len(attributes) != 4 {
		return 0
	}
	return hutch.FileMode(binary.BigEndian.Uint32(attributes)) & 0o777 &^ umask
}

// begin begins the stream at an offset: the whole file, its end, or a part of it.
func (w *writer) begin(offset int64) {
	out, in := io.Pipe()
	w.stream, w.next, w.ended = in, offset, make(chan error, 1)
	write := func(ctx context.Context) error {
		return w.s.runStream(ctx, hutch.InSeconds(w.s.MaxTimeout), out, "dd", "of="+w.path, "bs=65536", "iflag=fullblock", "oflag=seek_bytes", "seek="+strconv.FormatInt(offset, 10), "conv=notrunc", "status=none")
	}
	if w.fresh || w.append || offset == w.size {
		req := hutch.WriteRequest{Path: w.path, Append: !w.fresh}
		if w.fresh {
			req.Mode = w.mode
		}
		write = func(ctx context.Context) error {
			_, err := w.s.Service.WriteFile(ctx, w.s.Sandbox, req, out)
			return err
		}
	}
	w.fresh = false
	ended := w.ended
	w.s.tasks.Go(func() {
		err := write(w.s.Held)
		out.CloseWithError(cause(err))
		ended <- err
	})
}

// cause returns the error for data that is written after the service has ended the write with err.
func cause(err error) error {
	if err == nil {
		return hutch.Errorf(hutch.Conflict, "the file is written no more")
	}
	return err
}

// end ends the stream: its data is then in the file.
func (w *writer) end() error {
	if w.stream == nil {
		return w.err
	}
	w.stream.Close()
	w.stream = nil
	if err := <-w.ended; w.err == nil {
		w.err = err
	}
	w.size = max(w.size, w.next)
	return w.err
}

// WriteAt implements io.WriterAt.
func (w *writer) WriteAt(data []byte, offset int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.put(data, offset)
	}
	if w.err != nil {
		return 0, status(w.err)
	}
	return len(data), nil
}

// put writes data, holds it back, or starts a stream elsewhere with it.
func (w *writer) put(data []byte, offset int64) error {
	if !w.known {
		w.known, w.next = true, offset
		if offset > w.size && offset-w.size <= ahead {
			w.next = w.size // an earlier write has been overtaken
		}
	}
	switch {
	case offset == w.next:
		return w.write(data)
	case offset > w.next && offset-w.next <= ahead && w.held+len(data) <= ahead && len(w.early) < maxEarly:
		w.held += len(data) - len(w.early[offset])
		w.early[offset] = bytes.Clone(data)
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.next = offset
	return w.write(data)
}

// write writes data at the position of the stream, and early data that follows.
func (w *writer) write(data []byte) error {
	for ok := true; ok; data, ok = w.early[w.next] {
		if w.stream == nil {
			w.begin(w.next)
		}
		if held, is := w.early[w.next]; is {
			w.held -= len(held)
			delete(w.early, w.next)
		}
		n, err := w.stream.Write(data)
		w.next += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// flush writes all data to the file, and ends the stream.
func (w *writer) flush() error {
	for _, offset := range slices.Sorted(maps.Keys(w.early)) {
		data, ok := w.early[offset]
		if !ok {
			continue // it was written right after an earlier one
		}
		if err := w.end(); err != nil {
			return err
		}
		w.next = offset
		if err := w.write(data); err != nil {
			return err
		}
	}
	return w.end()
}

// resize writes all data to the file, and then changes its size. If the file has that size already, no command is
// needed: scp sets the size at the end of each file.
func (w *writer) resize(ctx context.Context, a attributes) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.s.apply(ctx, w.path, a)
	}
	if w.err == nil {
		w.err = w.flush()
	}
	if w.err != nil {
		return w.err
	}
	size := int64(a.Size)
	a.flags.Size = w.append || size != w.size // the position of appended bytes is unknown
	if err := w.s.apply(ctx, w.path, a); err != nil {
		return err
	}
	w.size = size
	return nil
}

// later notes changes to make when the file is closed. It returns false if the file is closed already.
func (w *writer) later(a attributes) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 100
	if w.closed || len(w.changes) >= most {
		return false
	}
	w.changes = append(w.changes, a)
	return true
}

// info returns a client's view of a file that it is writing: the data can still be elsewhere, under another name.
func (w *writer) info(now hutch.FileInfo, err error) (hutch.FileInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !errors.Is(err, hutch.NotFound) || w.closed {
		return now, err
	}
	if err != nil {
		now = hutch.FileInfo{Path: w.path, Name: w.path[1+bytes.LastIndexByte([]byte(w.path), '/'):], Type: hutch.RegularFile, Mode: max(w.mode, 0o600)}
	}
	if w.stream != nil {
		now.Size = w.next
	}
	return now, nil
}

// Close implements io.Closer. If the connection broke, it keeps the received part.
func (w *writer) Close() error {
	w.s.mu.Lock()
	if w.s.writers[w.name] == w {
		delete(w.s.writers, w.name)
	}
	w.s.mu.Unlock()
	defer w.release()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	err := w.err
	if err == nil {
		err = w.flush()
	} else {
		w.end()
	}
	for _, a := range w.changes {
		if err == nil {
			err = w.s.apply(w.s.Held, w.path, a)
		}
	}
	return status(err)
}

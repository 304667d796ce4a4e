package sftpfs

import (
	"context"
	"io"
	"sync"

	"github.com/pkg/sftp"

	"hutch"
)

// window is how much read data a reader keeps, and how far it reads ahead: requests for one file can overtake each
// other.
const window = 1 << 20

// reader reads a file at offsets.
type reader struct {
	s       *server
	name    string
	release func()

	mu     sync.Mutex
	data   []byte // data of the file, from begin on
	begin  int64
	stream *io.PipeReader // nil before the first read
	cancel context.CancelFunc
	ended  error // of the stream
}

// Fileread implements sftp.FileReader.
func (s *server) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	info, err := s.follow(r.Filepath)
	if err != nil {
		return nil, status(err)
	}
	if info.Type != hutch.RegularFile {
		return nil, status(hutch.Errorf(hutch.Conflict, "%.200q is not a file", r.Filepath))
	}
	return s.newReader(info.Path)
}

func (s *server) newReader(name string) (*reader, error) {
	release, err := s.take(2 * window)
	return &reader{s: s, name: name, release: release}, err
}

// ReadAt implements io.ReaderAt.
func (r *reader) ReadAt(to []byte, offset int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.begin + int64(len(r.data))
	if r.stream == nil || offset < r.begin || offset > end+window {
		r.restart(offset)
	}
	if err := r.readTo(offset + int64(len(to))); err != nil && err != io.EOF {
		return 0, status(err)
	}
	if offset >= r.begin+int64(len(r.data)) {
		return 0, io.EOF
	}
	n := copy(to, r.data[offset-r.begin:])
	r.trim(offset)
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

// restart starts to read at another offset.
func (r *reader) restart(offset int64) {
	r.stop()
	ctx, cancel := context.WithCancel(r.s.ctx)
	out, in := io.Pipe()
	r.data, r.begin, r.stream, r.cancel, r.ended = r.data[:0], offset, out, cancel, nil
	r.s.tasks.Go(func() {
		_, err := r.s.Service.ReadFile(ctx, r.s.Sandbox, hutch.ReadRequest{Path: r.name, Offset: offset}, in)
		in.CloseWithError(err)
	})
}

// stop ends the stream.
func (r *reader) stop() {
	if r.stream != nil {
		r.cancel()
		r.stream.Close()
		r.stream = nil
	}
}

// readTo reads until the data reaches an offset, or the end of the stream.
func (r *reader) readTo(offset int64) error {
	for r.ended == nil && r.begin+int64(len(r.data)) < offset {
		if cap(r.data)-len(r.data) < 32<<10 {
			room := max(min(2*cap(r.data)+64<<10, 3*window), len(r.data)+64<<10) // a read into an empty slice would not end
			r.data = append(make([]byte, 0, room), r.data...)
		}
		n, err := r.stream.Read(r.data[len(r.data):cap(r.data)])
		r.data, r.ended = r.data[:len(r.data)+n], err
	}
	return r.ended
}

// trim drops data far before the newest data and before an offset.
func (r *reader) trim(offset int64) {
	if len(r.data) < 2*window {
		return
	}
	drop := min(int64(len(r.data)-window), offset-r.begin)
	r.data = r.data[:copy(r.data, r.data[drop:])]
	r.begin += drop
}

// forget makes the next read see the file's current content.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.forget()
	r.release()
	return nil
}

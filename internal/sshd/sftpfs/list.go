package sftpfs

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/pkg/sftp"

	"hutch"
)

// maxList is the highest number of files in a folder that a client can list.
const maxList = 1_000_000

// list begins to list a folder. It waits for the first file, so that a folder that cannot be read is an error at once.
func (s *server) list(name string) (sftp.ListerAt, error) {
	release, err := s.take(0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	l := &lister{files: make(chan hutch.FileInfo), cancel: func() { cancel(); release() }}
	s.tasks.Go(func() {
		defer close(l.files)
		l.err = s.listFolder(ctx, name, func(info hutch.FileInfo) error {
			select {
			case l.files <- info:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	first, ok := <-l.files
	if !ok && l.err != nil {
		l.cancel()
		return nil, status(l.err)
	}
	if ok {
		l.first = &first
	}
	return l, nil
}

func (s *server) listFolder(ctx context.Context, name string, out func(hutch.FileInfo) error) error {
	info, err := s.follow(name)
	if err != nil {
		return err
	}
	if info.Type != hutch.Directory {
		return hutch.Errorf(hutch.Conflict, "%.200q is not a folder", name)
	}
	return s.Service.ListFiles(ctx, s.Sandbox, hutch.ListRequest{Path: info.Path, Hidden: true, Limit: maxList}, out)
}

// lister is a list in progress. A client asks for its parts in order. A client that sends other requests in between can
// have several lists in progress.
type lister struct {
	mu     sync.Mutex
	first  *hutch.FileInfo
	files  chan hutch.FileInfo
	err    error // why the list ended; set before files is closed
	cancel func()
}

func (l *lister) ListAt(to []os.FileInfo, _ int64) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first != nil && len(to) > 0 {
		to[0], l.first, n = entry{*l.first}, nil, 1
	}
	for ; n < len(to); n++ {
		info, ok := <-l.files
		switch {
		case !ok && l.err != nil:
			return n, status(l.err)
		case !ok:
			return n, io.EOF
		}
		to[n] = entry{info}
	}
	return n, nil
}

// Close implements io.Closer.
func (l *lister) Close() error { l.cancel(); return nil }

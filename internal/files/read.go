package files

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"hutch"
)

const (
	piece = 128 << 10 // bytes read at a time
	large = 512 << 10 // bytes read at a time from a large file
)

// ReadFile implements hutch.Files.
func (f *FS) ReadFile(ctx context.Context, _ string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	if err := req.Check(); err != nil {
		return hutch.FileInfo{}, err
	}
	file, info, err := f.open(req.Path)
	if err != nil {
		return info, err
	}
	defer file.Close()
	if req.Opened != nil {
		req.Opened(info)
	}
	r := cancelled{ctx, file}
	switch {
	case req.Lines():
		err = copyLines(w, r, req)
	case info.Size == 0: // it is empty, or the kernel does not know its size
		err = copyUnsized(w, r, req)
	default:
		err = copyRange(w, ctx, file, req, info)
	}
	if errors.Is(err, errShorter) {
		err = hutch.Errorf(hutch.Conflict, "the file %.200q became shorter while it was read: read it again", info.Path)
	}
	return info, withPath(err, info.Path)
}

// withPath adds the path to an error of the kernel, and leaves errors of readers and writers unchanged.
func withPath(err error, p string) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return fail(e.Err, p)
	}
	return err
}

var errShorter = errors.New("shorter")

func copyRange(w io.Writer, ctx context.Context, file *os.File, req hutch.ReadRequest, info hutch.FileInfo) error {
	from, to := req.Range(info.Size)
	buf := make([]byte, min(large, to-from))
	for from < to {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := file.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if n == 0 && err == io.EOF {
			return errShorter
		}
		if n == 0 {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

func copyUnsized(w io.Writer, r io.Reader, req hutch.ReadRequest) error {
	if _, err := io.CopyN(io.Discard, r, max(req.Offset, 0)); err != nil {
		return notEOF(err)
	}
	if req.Length > 0 {
		r = io.LimitReader(r, req.Length)
	}
	_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{r}, make([]byte, 16<<10))
	return err
}

// onlyReader and onlyWriter hide other methods, which io.Copy would use.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

func notEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// copyLines copies the requested lines piece by piece: a line can be as long as the file.
func copyLines(w io.Writer, r io.Reader, req hutch.ReadRequest) error {
	in := bufio.NewReaderSize(r, piece)
	left := req.Length
	for line := 1; req.LastLine == 0 || line <= req.LastLine; {
		part, err := in.ReadSlice('\n')
		if line >= req.FirstLine && len(part) > 0 {
			if req.Length > 0 {
				part = part[:min(int64(len(part)), left)]
				left -= int64(len(part))
			}
			if _, err := w.Write(part); err != nil {
				return err
			}
			if req.Length > 0 && left == 0 {
				return nil
			}
		}
		switch {
		case err == nil:
			line++
		case err == io.EOF:
			return nil
		case err != bufio.ErrBufferFull:
			return err
		}
	}
	return nil
}

// wholeFile reads a file into memory, unless it is over the limit.
func (f *FS) wholeFile(ctx context.Context, p string, limit int64) ([]byte, hutch.FileInfo, error) {
	var b bytes.Buffer
	info, err := f.ReadFile(ctx, "", hutch.ReadRequest{Path: p, Length: limit + 1}, &b)
	if err == nil && int64(b.Len()) > limit {
		err = hutch.Errorf(hutch.Exhausted, "%.200q is larger than %d MiB, the limit for edits: change it with a program", info.Path, limit>>20)
	}
	return b.Bytes(), info, err
}

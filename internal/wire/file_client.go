package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"hutch"
)

// Stat describes what path names.
func (c *Client) Stat(ctx context.Context, path string) (hutch.FileInfo, error) {
	return info(call[hutch.FileInfo](ctx, c, Request{Op: "stat", File: File{Path: []byte(path)}.of(ctx)}))
}

// Edit replaces text in a file.
func (c *Client) Edit(ctx context.Context, req hutch.EditRequest) (hutch.Edit, error) {
	e, err := call[hutch.Edit](ctx, c, Request{Op: "edit", File: File{Path: []byte(req.Path), Old: []byte(req.Old), New: []byte(req.New), All: req.All}.of(ctx)})
	if err == nil && (e.Replacements < 1 || e.Line < 1) {
		err = broken(fmt.Errorf("edit of %d texts in line %d", e.Replacements, e.Line))
	}
	if err == nil {
		e.File, err = info(e.File, nil)
	}
	return e, err
}

// info passes on a valid record.
func info(f hutch.FileInfo, err error) (hutch.FileInfo, error) {
	if err == nil {
		err = checkInfo(f)
		if err != nil {
			err = broken(err)
		}
	}
	if err != nil {
		return hutch.FileInfo{}, err
	}
	return f, nil
}

// Mkdir makes a folder.
func (c *Client) Mkdir(ctx context.Context, path string, parents bool) error {
	return c.change(ctx, "mkdir", File{Path: []byte(path), Parents: parents})
}

// Chmod changes permissions.
func (c *Client) Chmod(ctx context.Context, path string, mode hutch.FileMode) error {
	return c.change(ctx, "chmod", File{Path: []byte(path), Mode: uint32(mode)})
}

func (c *Client) change(ctx context.Context, op string, f File) error {
	_, err := call[struct{}](ctx, c, Request{Op: op, File: f.of(ctx)})
	return err
}

// Move renames.
func (c *Client) Move(ctx context.Context, from, to string, replace bool) error {
	return c.work(ctx, "move", File{Path: []byte(from), To: []byte(to), Replace: replace}, nil, nil)
}

// Copy copies.
func (c *Client) Copy(ctx context.Context, from, to string, replace bool) error {
	return c.work(ctx, "copy", File{Path: []byte(from), To: []byte(to), Replace: replace}, nil, nil)
}

// Delete removes.
func (c *Client) Delete(ctx context.Context, path string, recursive bool) error {
	return c.work(ctx, "delete", File{Path: []byte(path), Recursive: recursive}, nil, nil)
}

// Read copies a file, or a part of it, to w.
func (c *Client) Read(ctx context.Context, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	r := &reading{req: req, w: w}
	err := c.work(ctx, "read", File{
		Path: []byte(req.Path), Offset: req.Offset, Length: req.Length, FirstLine: req.FirstLine, LastLine: req.LastLine,
	}, nil, r)
	return r.info, err
}

// reading is a file that is being received.
type reading struct {
	req  hutch.ReadRequest
	w    io.Writer
	info hutch.FileInfo
	left int64 // bytes that can still arrive; negative for no limit
}

func (r *reading) started(payload []byte) error {
	if err := json.Unmarshal(payload, &r.info); err != nil {
		return err
	}
	if err := checkInfo(r.info); err != nil {
		return err
	}
	r.left = r.most()
	if r.req.Opened != nil {
		r.req.Opened(r.info)
	}
	return nil
}

// most returns how many bytes an honest agent sends at most. For a file with a size it sends exactly that many, unless
// lines were requested.
func (r *reading) most() int64 {
	switch {
	case r.info.Size > 0 && !r.req.Lines():
		from, to := r.req.Range(r.info.Size)
		return to - from
	case r.req.Length > 0:
		return r.req.Length
	}
	return -1
}

func (r *reading) frame(t Type, payload []byte) error {
	if t != TypeData {
		return fmt.Errorf("frame of type %q while a file is read", t)
	}
	if r.left >= 0 {
		if r.left -= int64(len(payload)); r.left < 0 {
			return errors.New("more of a file than there is")
		}
	}
	if _, err := r.w.Write(payload); err != nil {
		return callerError{err}
	}
	return nil
}

func (r *reading) ended([]byte) error {
	if r.left > 0 && r.info.Size > 0 && !r.req.Lines() {
		return errors.New("less of a file than there is")
	}
	return nil
}

// Write creates a file with everything that r returns.
func (c *Client) Write(ctx context.Context, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	var w writing
	err := c.work(ctx, "write", File{
		Path: []byte(req.Path), Mode: uint32(req.Mode), Append: req.Append, Create: req.Create, Parents: req.Parents, Attributes: req.Attributes,
	}, r, &w)
	return w.info, err
}

type writing struct{ info hutch.FileInfo }

func (*writing) started([]byte) error { return nil }

func (*writing) frame(t Type, _ []byte) error {
	return fmt.Errorf("frame of type %q while a file is written", t)
}

func (w *writing) ended(payload []byte) error {
	var f hutch.FileInfo
	if err := json.Unmarshal(payload, &f); err != nil {
		return err
	}
	if err := checkInfo(f); err != nil {
		return err
	}
	w.info = f
	return nil
}

// Files passes the entries below a folder to out, and never more than the request allows.
func (c *Client) Files(ctx context.Context, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	out = atMost(req.Most(), out)
	return c.work(ctx, "files", File{
		Path: []byte(req.Path), Recursive: req.Recursive, Depth: req.Depth, Hidden: req.Hidden, Glob: []byte(req.Glob), Limit: req.Limit, ListAttributes: req.Attributes,
	}, nil, listing(func(b []byte) error { return items(b, checkInfo, out) }))
}

// Search passes matches to out, and never more than the request allows.
func (c *Client) Search(ctx context.Context, req hutch.SearchRequest, out func(hutch.Match) error) error {
	out = atMost(req.Most(), out)
	return c.work(ctx, "search", File{
		Path: []byte(req.Path), Pattern: []byte(req.Pattern), Glob: []byte(req.Glob), Hidden: req.Hidden, Limit: req.Limit,
	}, nil, listing(func(b []byte) error { return items(b, checkMatch, out) }))
}

// Watch passes changes to out.
func (c *Client) Watch(ctx context.Context, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return c.work(ctx, "watch", File{Path: []byte(req.Path), Recursive: req.Recursive}, nil,
		listing(func(b []byte) error { return items(b, checkEvent, out) }))
}

// errLong ends a list that has more items than were requested. An honest agent reports that with an error of its own.
// Callers that collect a list rely on its limit.
var errLong = broken(errors.New("a list with more items than were asked for"))

// atMost passes on at most n items.
func atMost[T any](n int, out func(T) error) func(T) error {
	return func(item T) error {
		if n--; n < 0 {
			return errLong
		}
		return out(item)
	}
}

// listing receives items.
type listing func(payload []byte) error

func (listing) started([]byte) error { return nil }
func (listing) ended([]byte) error   { return nil }

func (l listing) frame(t Type, payload []byte) error {
	if t != TypeItems {
		return fmt.Errorf("frame of type %q in a list", t)
	}
	return l(payload)
}

// Pack writes an archive to w.
func (c *Client) Pack(ctx context.Context, req hutch.PackRequest, w io.Writer) error {
	f := File{Path: []byte(req.Dir), Format: string(req.Format)}
	for _, name := range req.Paths {
		f.Names = append(f.Names, []byte(name))
	}
	return c.work(ctx, "pack", f, nil, sink{w})
}

// sink receives data.
type sink struct{ io.Writer }

func (sink) started([]byte) error { return nil }
func (sink) ended([]byte) error   { return nil }

func (s sink) frame(t Type, payload []byte) error {
	if t != TypeData {
		return fmt.Errorf("frame of type %q in an archive", t)
	}
	if _, err := s.Write(payload); err != nil {
		return callerError{err}
	}
	return nil
}

// Unpack sends an archive.
func (c *Client) Unpack(ctx context.Context, req hutch.UnpackRequest, r io.Reader) error {
	return c.work(ctx, "unpack", File{Path: []byte(req.Dir), Format: string(req.Format)}, r, nil)
}

// receiver receives the agent's answers; nil accepts none.
type receiver interface {
	started(payload []byte) error
	frame(t Type, payload []byte) error
	ended(payload []byte) error
}

// work makes a request that can take long. The answer is a frame started, then frames for out, and then the result.
// Meanwhile work sends the data of in. It ends early when ctx is done.
func (c *Client) work(ctx context.Context, op string, f File, in io.Reader, out receiver) error {
	if out == nil {
		out = sink{io.Discard}
	}
	return c.do(ctx, Request{Op: op, File: f.of(ctx)}, func(cn *conn, t Type, payload []byte) error {
		if t != TypeStarted {
			return fmt.Errorf("frame of type %q instead of started", t)
		}
		if err := out.started(payload); err != nil {
			return err
		}
		s := &stream{conn: cn, room: make(chan int64, 1)}
		if in == nil {
			return s.receive(out)
		}
		return s.fed(in, FileWindow, func(<-chan struct{}) error { return s.receive(out) })
	})
}

// receive reads the answer to its end.
func (s *stream) receive(out receiver) error {
	for {
		t, payload, err := s.conn.r.Next()
		if err != nil {
			return err
		}
		switch t {
		case TypeWindow:
			err = s.window(payload)
		case TypeError:
			return refusal(payload)
		case TypeReply:
			return out.ended(payload)
		default:
			err = out.frame(t, payload)
		}
		if err != nil {
			return err
		}
	}
}

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/files"
	"hutch/internal/flowcontrol"
	"hutch/internal/linux/creds"
	"hutch/internal/linux/spawn"
	"hutch/internal/wire"
)

// filesOf returns two views of the files with the rights of a user: f for changes, readable for reading. Without a
// user, both have the rights of the agent.
func filesOf(boot wire.Boot, user *spawn.User) (f, readable *files.FS) {
	f = &files.FS{Dir: boot.Dir, Secret: "/proc/" + strconv.Itoa(os.Getpid())}
	if user == nil {
		return f, f
	}
	f.As = func(do func() error) error { return creds.Do(user.UID, user.GID, do) }
	if user.UID != 0 || os.Geteuid() != wire.AgentID {
		return f, f
	}
	all := *f // root can read and archive files that are closed to other users
	all.As = func(do func() error) error { return creds.DoWith(0, user.GID, 1<<unix.CAP_DAC_READ_SEARCH, do) }
	return f, &all
}

// filesFor returns the files for a request of a user. Requests that change files do not get the right to enter every
// folder: the agent's folder contains the folder of its socket, whose files belong to root.
func (a *agent) filesFor(op, user string) (*files.FS, error) {
	disk, readable := a.files, a.readable
	if user != "" {
		u, err := a.userOf(user)
		if err != nil {
			return nil, err
		}
		disk, readable = filesOf(a.boot, u.ids)
	}
	switch op {
	case "stat", "read", "files", "search", "watch", "pack":
		return readable, nil
	}
	return disk, nil
}

// file answers a request about files, or starts one that can take long.
func (c *conn) file(w *wire.Writer, op string, f wire.File) (answer any, err error) {
	ctx, p := context.Background(), string(f.Path)
	if op == "write" { // a write reads the following frames, even if it is refused
		return nil, c.upload(w, f)
	}
	disk, err := c.agent.filesFor(op, f.User)
	if err != nil {
		return nil, err
	}
	switch op {
	case "stat":
		return disk.Stat(ctx, "", p)
	case "edit":
		return disk.EditFile(ctx, "", hutch.EditRequest{Path: p, Old: string(f.Old), New: string(f.New), All: f.All})
	case "mkdir":
		return struct{}{}, disk.Mkdir(ctx, "", p, f.Parents)
	case "chmod":
		return struct{}{}, disk.Chmod(ctx, "", p, hutch.FileMode(f.Mode))
	}
	work, ok := fileWork[op]
	if !ok {
		return nil, hutch.Errorf(hutch.Unsupported, "the agent knows no request %.40q: it may be older than the daemon", op)
	}
	t := &fileTask{conn: c, disk: disk, request: f, in: flowcontrol.NewQueue(wire.FileWindow, func(n int64) { w.WriteCount(wire.TypeWindow, n) })}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.buffer = bufio.NewWriterSize(c.Conn, 4<<10)
	t.out = wire.NewWriter(t.buffer)
	c.beginTask(t)
	c.agent.group.Go(func() { t.runWork(work) })
	return nil, nil
}

// upload writes a file from the connection. It reads the frames itself, so no data crosses threads; it notices a
// closed connection when it reads the next piece.
func (c *conn) upload(w *wire.Writer, f wire.File) error {
	defer c.agent.idle.touch()
	begun := bufio.NewWriterSize(c.Conn, 64)
	t := wire.NewWriter(begun)
	t.Write(wire.TypeStarted, []byte("{}"))
	t.WriteCount(wire.TypeWindow, wire.Unbounded)
	begun.Flush()
	in := wire.NewContent(c.r)
	disk, err := c.agent.filesFor("write", f.User)
	var info hutch.FileInfo
	if err == nil {
		info, err = disk.WriteFile(context.Background(), "", hutch.WriteRequest{
			Path: string(f.Path), Mode: hutch.FileMode(f.Mode), Append: f.Append, Create: f.Create, Parents: f.Parents, Attributes: f.Attributes,
		}, in)
	}
	if err == nil {
		return w.WriteJSON(wire.TypeReply, info)
	}
	refuse(w, err)
	if _, err := io.Copy(io.Discard, in); err != nil {
		c.Close() // after a failed upload, it is unknown where the next frame begins
	}
	return nil
}

// errLeft ends work that the daemon no longer waits for.
var errLeft = errors.New("the daemon hung up")

// fileTask is a request about files that is in progress.
type fileTask struct {
	conn    *conn
	disk    *files.FS
	request wire.File
	ctx     context.Context
	cancel  context.CancelCauseFunc
	in      *flowcontrol.Queue
	buffer  *bufio.Writer // gathers small frames
	out     *wire.Writer  // writer for buffered output
}

func (t *fileTask) runWork(work func(*fileTask, *files.FS, wire.File) (any, error)) {
	defer t.cancel(nil)
	defer t.conn.agent.idle.touch()
	answer, err := work(t, t.disk, t.request)
	t.conn.endTask()
	if err != nil {
		refuse(t.out, err)
	} else {
		t.out.WriteJSON(wire.TypeReply, answer)
	}
	t.buffer.Flush()
}

// reportBegun reports at once that the work has begun.
func (t *fileTask) reportBegun() {
	t.out.Write(wire.TypeStarted, []byte("{}"))
	t.buffer.Flush()
}

// Write sends a piece of a file; a large piece bypasses the buffer.
func (t *fileTask) Write(b []byte) (n int, err error) {
	for chunk := range slices.Chunk(b, wire.FileChunk) {
		if err := t.send(chunk); err != nil {
			return n, err
		}
		n += len(chunk)
	}
	return n, nil
}

func (t *fileTask) send(chunk []byte) error {
	if len(chunk) < t.buffer.Size() {
		return t.out.Write(wire.TypeData, chunk)
	}
	if err := t.buffer.Flush(); err != nil {
		return err
	}
	return wire.NewWriter(t.conn.Conn).WriteLarge(wire.TypeData, chunk)
}

func (t *fileTask) stdin(data []byte) bool { return t.in.Add(data) }
func (t *fileTask) stdinEnd()              { t.in.End(io.EOF) }
func (t *fileTask) signal(syscall.Signal)  {}

func (t *fileTask) hangUp() {
	t.cancel(errLeft)
	t.in.End(errLeft)
}

// fileWork maps each long request to its function.
var fileWork = map[string]func(t *fileTask, disk *files.FS, f wire.File) (any, error){
	"read": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		_, err := disk.ReadFile(t.ctx, "", hutch.ReadRequest{
			Path: string(f.Path), Offset: f.Offset, Length: f.Length, FirstLine: f.FirstLine, LastLine: f.LastLine,
			Opened: func(info hutch.FileInfo) { t.out.WriteJSON(wire.TypeStarted, info) },
		}, t)
		return struct{}{}, err
	},
	"files": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		b := batch[hutch.FileInfo]{to: t}
		err := disk.ListFiles(t.ctx, "", hutch.ListRequest{
			Path: string(f.Path), Recursive: f.Recursive, Depth: f.Depth, Hidden: f.Hidden, Glob: string(f.Glob), Limit: f.Limit, Attributes: f.ListAttributes,
		}, b.add)
		return struct{}{}, b.close(err)
	},
	"search": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		b := batch[hutch.Match]{to: t}
		err := disk.SearchFiles(t.ctx, "", hutch.SearchRequest{
			Path: string(f.Path), Pattern: string(f.Pattern), Glob: string(f.Glob), Hidden: f.Hidden, Limit: f.Limit,
		}, b.add)
		return struct{}{}, b.close(err)
	},
	"watch": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		b := batch[hutch.FileEvent]{to: t}
		err := disk.Changes(t.ctx, hutch.WatchRequest{Path: string(f.Path), Recursive: f.Recursive}, b.all)
		return struct{}{}, b.close(err)
	},
	"move": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		return struct{}{}, disk.Move(t.ctx, "", string(f.Path), string(f.To), f.Replace)
	},
	"copy": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		return struct{}{}, disk.Copy(t.ctx, "", string(f.Path), string(f.To), f.Replace)
	},
	"delete": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		return struct{}{}, disk.Delete(t.ctx, "", string(f.Path), f.Recursive)
	},
	"pack": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		req := hutch.PackRequest{Dir: string(f.Path), Format: hutch.ArchiveFormat(f.Format)}
		for _, name := range f.Names {
			req.Paths = append(req.Paths, string(name))
		}
		return struct{}{}, disk.Pack(t.ctx, "", req, t)
	},
	"unpack": func(t *fileTask, disk *files.FS, f wire.File) (any, error) {
		t.reportBegun()
		return struct{}{}, disk.Unpack(t.ctx, "", hutch.UnpackRequest{Dir: string(f.Path), Format: hutch.ArchiveFormat(f.Format)}, t.in)
	},
}

// batch collects items into frames of a good size.
type batch[T any] struct {
	to  *fileTask
	buf []byte
}

const batchSize = 32 << 10

func (b *batch[T]) add(item T) error {
	text, err := json.Marshal(item)
	if err != nil {
		return err
	}
	sep := byte(',')
	if len(b.buf) == 0 {
		sep = '['
	}
	b.buf = append(append(b.buf, sep), text...)
	if len(b.buf) < batchSize {
		return nil
	}
	return b.flush()
}

// all sends items at once, even if the frame is small.
func (b *batch[T]) all(items []T) error {
	for _, item := range items {
		if err := b.add(item); err != nil {
			return err
		}
	}
	if err := b.flush(); err != nil {
		return err
	}
	return b.to.buffer.Flush()
}

func (b *batch[T]) flush() error {
	if len(b.buf) == 0 {
		return nil
	}
	err := b.to.out.Write(wire.TypeItems, append(b.buf, ']'))
	b.buf = b.buf[:0]
	return err
}

// close sends the rest, before the error that ended the work.
func (b *batch[T]) close(err error) error {
	if ferr := b.flush(); ferr != nil {
		return ferr
	}
	return err
}

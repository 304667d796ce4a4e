package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
)

const (
	watched = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
	maxWatches = 64 << 10
	// pairTime is how long the second event of a move can come after the first.
	pairTime = 20 * time.Millisecond
	maxSeen  = 64 << 10
)

// Watch implements hutch.Files.
func (f *FS) Watch(ctx context.Context, _ string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return f.Changes(ctx, req, func(events []hutch.FileEvent) error {
		for _, e := range events {
			if err := out(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// Changes does the same as Watch, but passes all events that have arrived in one call.
func (f *FS) Changes(ctx context.Context, req hutch.WatchRequest, out func([]hutch.FileEvent) error) error {
	p, err := f.path(req.Path)
	if err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return hutch.Errorf(hutch.Exhausted, "the system has no watch left: end another one").Because(err)
	}
	w := &watcher{
		fs: f, file: os.NewFile(uintptr(fd), "inotify"), recursive: req.Recursive,
		paths: map[int]string{}, seen: map[string]bool{}, drafts: map[uint32]bool{},
	}
	defer w.file.Close()
	if err := f.as(func() error { return w.begin(ctx, p) }); err != nil {
		return err
	}
	if err := out([]hutch.FileEvent{{Type: hutch.WatchReady}}); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { w.file.Close() })()
	box := newOutbox()
	var sending sync.WaitGroup
	sending.Go(func() {
		box.send(out)
		w.file.Close()
	})
	err = w.run(box.add)
	box.close()
	sending.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case box.err != nil:
		return box.err
	}
	return err
}

// outbox stores events for a slow receiver, so that the kernel's own queue, which is small, stays empty.
type outbox struct {
	mu     sync.Mutex
	more   sync.Cond
	events []hutch.FileEvent
	closed bool
	err    error // the receiver's error; read after send has returned
}

const maxOutbox = 64 << 10

func newOutbox() *outbox {
	b := &outbox{}
	b.more.L = &b.mu
	return b
}

// add stores an event. If there are too many, it replaces them by one Overflow.
func (b *outbox) add(e hutch.FileEvent) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) >= maxOutbox {
		b.events = append(b.events[:0], hutch.FileEvent{Type: hutch.Overflow})
	}
	b.events = append(b.events, e)
	b.more.Signal()
	return nil
}

// close lets send return after it has sent everything.
func (b *outbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Signal()
}

func (b *outbox) send(out func([]hutch.FileEvent) error) {
	for b.err == nil {
		b.mu.Lock()
		for len(b.events) == 0 && !b.closed {
			b.more.Wait()
		}
		events := b.events
		b.events = nil
		b.mu.Unlock()
		if len(events) == 0 {
			return
		}
		b.err = out(events)
	}
}

// watcher turns the inotify events of single folders into changes of a tree.
type watcher struct {
	fs        *FS
	file      *os.File
	recursive bool
	only      string // the only relevant name, if there is one
	root      int

	paths map[int]string // paths of the watched folders
	// seen are files that the scan of a new folder has found: the events of their creation can still arrive.
	seen   map[string]bool
	drafts map[uint32]bool // moves of our own temporary files, by cookie
	queue  []change
	ended  bool
}

// change is an event that waits to be reported. A departure can be the first half of a move, and delays the events
// after it.
type change struct {
	hutch.FileEvent
	wd int // watch descriptor of the folder that reported it

	// For a departure, which can be a move:
	cookie uint32
	since  time.Time
	inside []int // its watches, if it is a folder
	quiet  bool  // matters only if the file became the watched file
}

// begin sets up the first watches. A file is watched through its folder, so that a file which replaces it is watched,
// too.
func (w *watcher) begin(ctx context.Context, p string) error {
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil {
		return fail(err, p)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		p, w.only, w.recursive = path.Dir(p), path.Base(p), false
	}
	dir, err := folder(unix.AT_FDCWD, p, 0) // not every kernel requires the right to read
	if err != nil {
		return fail(err, p)
	}
	unix.Close(dir)
	wd, err := w.add(p, 0)
	if err != nil {
		return fail(err, p)
	}
	w.root = wd
	w.paths[wd] = path.Clean(p)
	if !w.recursive {
		return nil
	}
	return w.below(ctx, w.paths[wd], false)
}

func (w *watcher) add(p string, flags uint32) (wd int, err error) {
	if len(w.paths) >= maxWatches {
		return 0, unix.ENOSPC
	}
	conn, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := conn.Control(func(fd uintptr) { wd, err = unix.InotifyAddWatch(int(fd), p, watched|flags) }); cerr != nil {
		return 0, cerr
	}
	return wd, err
}

func (w *watcher) drop(wd int) {
	delete(w.paths, wd)
	if conn, err := w.file.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { unix.InotifyRmWatch(int(fd), uint32(wd)) })
	}
}

// below watches the subfolders of a folder, and announces the files that it finds.
func (w *watcher) below(ctx context.Context, base string, announce bool) error {
	dir, err := folder(unix.AT_FDCWD, base, 0)
	if err != nil {
		return nil // deleted, or not readable
	}
	return w.fs.walk(ctx, dir, base, 0, func(e *entry) error {
		if announce && !strings.HasPrefix(e.name, hidden) {
			w.push(change{FileEvent: hutch.FileEvent{Type: hutch.FileCreated, Path: e.path, Dir: e.isDir()}})
			w.seen[e.path] = true
		}
		if !e.isDir() {
			return nil
		}
		wd, err := w.add(e.path, unix.IN_DONT_FOLLOW)
		switch err {
		case nil:
			w.paths[wd] = e.path
			return nil
		case unix.ENOSPC:
			return hutch.Errorf(hutch.Exhausted, "there are more folders below %.200q than can be watched: watch a smaller part", base).With("limit", "watches")
		}
		return errSkip
	})
}

func (w *watcher) push(c change) {
	if n := len(w.queue); n > 0 && c.Type == hutch.FileModified && w.queue[n-1].FileEvent == c.FileEvent && w.queue[n-1].wd == c.wd {
		return
	}
	w.queue = append(w.queue, c)
}

// run reads events and reports changes until the watched folder is gone.
func (w *watcher) run(out func(hutch.FileEvent) error) error {
	buf := make([]byte, 64<<10)
	for {
		var limit time.Time
		if len(w.queue) > 0 {
			limit = w.queue[0].since.Add(pairTime)
		}
		w.file.SetReadDeadline(limit)
		n, err := w.file.Read(buf)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		w.take(buf[:n])
		if err := w.flushEvents(out); err != nil || w.ended {
			return err
		}
		if len(w.seen) > maxSeen { // so a file can be reported twice
			clear(w.seen)
		}
	}
}

// take turns raw events into changes.
func (w *watcher) take(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent && !w.ended {
		wd := int(int32(binary.NativeEndian.Uint32(b)))
		mask, cookie, n := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+n], []byte{0})
		w.event(wd, mask, cookie, string(name))
		b = b[unix.SizeofInotifyEvent+n:]
	}
}

func (w *watcher) event(wd int, mask, cookie uint32, name string) {
	dir, known := w.paths[wd]
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		w.reportLost()
	case !known:
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0:
		if wd == w.root {
			w.push(change{FileEvent: hutch.FileEvent{Type: hutch.WatchEnded, Path: dir, Dir: true}})
			w.ended = true
		} else if mask&unix.IN_IGNORED != 0 {
			delete(w.paths, wd)
		}
	default:
		w.change(wd, mask, cookie, path.Join(dir, name), name)
	}
}

// reportLost reports that changes were lost, and finds new folders.
func (w *watcher) reportLost() {
	w.push(change{FileEvent: hutch.FileEvent{Type: hutch.Overflow}})
	if w.recursive {
		w.fs.as(func() error { return w.below(context.Background(), w.paths[w.root], false) })
	}
}

func (w *watcher) change(wd int, mask, cookie uint32, p, name string) {
	e := hutch.FileEvent{Path: p, Dir: mask&unix.IN_ISDIR != 0}
	draft := strings.HasPrefix(name, hidden)
	other := w.only != "" && name != w.only
	switch {
	case draft && mask&unix.IN_MOVED_FROM != 0:
		w.drafts[cookie] = true
	case draft:
	case mask&unix.IN_MOVED_FROM != 0:
		delete(w.seen, p)
		e.Type = hutch.FileDeleted
		c := change{FileEvent: e, wd: wd, cookie: cookie, since: time.Now(), quiet: other}
		if e.Dir {
			c.inside = w.inside(p)
		}
		w.push(c)
	case other:
	case mask&unix.IN_CREATE != 0:
		w.created(wd, e)
	case mask&unix.IN_MODIFY != 0:
		e.Type = hutch.FileModified
		w.push(change{FileEvent: e, wd: wd})
	case mask&unix.IN_DELETE != 0:
		delete(w.seen, p)
		e.Type = hutch.FileDeleted
		w.push(change{FileEvent: e, wd: wd})
	case mask&unix.IN_MOVED_TO != 0:
		w.moved(wd, e, cookie)
	}
}

func (w *watcher) created(wd int, e hutch.FileEvent) {
	if w.seen[e.Path] {
		delete(w.seen, e.Path)
		return
	}
	e.Type = hutch.FileCreated
	w.push(change{FileEvent: e, wd: wd})
	if e.Dir && w.recursive {
		w.enter(e.Path)
	}
}

// enter watches a new folder with its content so far.
func (w *watcher) enter(p string) {
	err := w.fs.as(func() error {
		wd, err := w.add(p, unix.IN_DONT_FOLLOW)
		if err != nil {
			return err
		}
		w.paths[wd] = p
		return w.below(context.Background(), p, true)
	})
	if err == unix.ENOSPC || errors.Is(err, hutch.Exhausted) {
		w.push(change{FileEvent: hutch.FileEvent{Type: hutch.Overflow}})
	}
}

// moved pairs an arrival with the departure of the same cookie.
func (w *watcher) moved(wd int, e hutch.FileEvent, cookie uint32) {
	if w.drafts[cookie] {
		delete(w.drafts, cookie)
		if !e.Dir { // a temporary file of something new is linked, and not moved
			e.Type = hutch.FileModified
			w.push(change{FileEvent: e})
			return
		}
	}
	for i, c := range w.queue {
		if c.cookie == cookie {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			e.Type, e.From = hutch.FileMoved, c.Path
			w.push(change{FileEvent: e})
			for _, wd := range c.inside {
				w.paths[wd] = e.Path + strings.TrimPrefix(w.paths[wd], c.Path)
			}
			return
		}
	}
	delete(w.seen, e.Path)
	w.created(wd, e)
}

// inside lists the watches of a folder and of its subfolders.
func (w *watcher) inside(dir string) (wds []int) {
	for wd, p := range w.paths {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			wds = append(wds, wd)
		}
	}
	return wds
}

// forget drops the watches of a folder that was moved away. It also drops the events that these watches have reported
// since then, because they happened elsewhere.
func (w *watcher) forget(wds []int, since []change) {
	for _, wd := range wds {
		w.drop(wd)
		for i := range since {
			if since[i].wd == wd {
				since[i].quiet = true
			}
		}
	}
}

// flushEvents passes on the changes before the first departure that can still become a move.
func (w *watcher) flushEvents(out func(hutch.FileEvent) error) error {
	for i := range w.queue {
		c := &w.queue[i]
		if c.cookie != 0 && !w.ended && time.Since(c.since) < pairTime {
			w.queue = append(w.queue[:0], w.queue[i:]...)
			return nil
		}
		w.forget(c.inside, w.queue[i+1:])
		if c.quiet {
			continue
		}
		if err := out(c.FileEvent); err != nil {
			return err
		}
	}
	w.queue = w.queue[:0]
	clear(w.drafts)
	return nil
}

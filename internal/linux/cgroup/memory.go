package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// MemoryWatch follows the memory of one group. After Hold, it makes the kernel pause
// the group at the group's limit instead of killing one of its processes:
//
//   - Version 1: a process that needs memory over the limit waits until some is
//     free, or the limit is raised. It also waits if this process dies, and
//     continues when the next watch raises the limit.
//   - Version 2: over the soft limit the kernel slows the group down.
//
// Both first reclaim cached files.
type MemoryWatch struct {
	group  *Group
	soft   int64
	files  []*os.File // the files of the events must stay open
	events *os.File   // nil if there are no events
}

// MemoryReading is one reading of a group's memory.
type MemoryReading struct {
	Charged int64 // bytes, including cached files
	Used    int64 // bytes that cannot be reclaimed
	Held    bool  // the kernel pauses the group for memory; version 1 only
}

// WatchMemory begins to watch the group. soft is the memory usage, in bytes, at which Wait wakes. On version 1 the
// kernel waits for all processors before it accepts the watch: for 10 to 40 ms, one thread and one of Go's processors
// are blocked.
func (g *Group) WatchMemory(soft int64) (*MemoryWatch, error) {
	w := &MemoryWatch{group: g, soft: soft}
	if !g.tree.v1() {
		return w, nil
	}
	if err := w.requestEvents(); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch the memory of control group %s: %w", g.name, err)
	}
	return w, nil
}

// Hold makes the kernel pause the group from now on, as described at MemoryWatch.
func (w *MemoryWatch) Hold() error {
	g := w.group
	dir, file, value := g.dirs()[0], "memory.high", strconv.FormatInt(w.soft, 10)
	if g.tree.v1() {
		dir, file, value = g.dir("memory"), "memory.oom_control", "1"
	}
	if err := put(dir, file, value); err != nil {
		return fmt.Errorf("limit the memory of control group %s: %w", g.name, err)
	}
	return nil
}

// requestEvents requests an event when usage crosses the soft limit, and another when the group reaches its limit.
func (w *MemoryWatch) requestEvents() error {
	dir := w.group.dir("memory")
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	w.events = os.NewFile(uintptr(fd), "memory events")
	for file, arg := range map[string]string{"memory.usage_in_bytes": " " + strconv.FormatInt(w.soft, 10), "memory.oom_control": ""} {
		f, err := os.Open(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		w.files = append(w.files, f)
		if err := put(dir, "cgroup.event_control", fmt.Sprintf("%d %d%s", fd, f.Fd(), arg)); err != nil {
			return err
		}
	}
	return nil
}

// Read reads the memory now. If the group is gone, it returns an error.
func (w *MemoryWatch) Read() (MemoryReading, error) {
	g, r := w.group, reader{}
	var m MemoryReading
	dir, prefix := "", ""
	if g.tree.v1() {
		dir, prefix = g.dir("memory"), "total_"
		m.Charged = r.number(dir, "memory.usage_in_bytes")
		m.Held = r.field(dir, "memory.oom_control", "under_oom") != 0
	} else {
		dir = g.dirs()[0]
		m.Charged = r.number(dir, "memory.current")
	}
	m.Used = m.Charged
	if m.Charged > w.soft { // below soft it does not matter, and reading it is slow
		m.Used = used(m.Charged, r.cachedFiles(dir, prefix))
	}
	return m, r.end(dir)
}

// Wait waits for an event, until the time is up or ctx is done. If the kernel supports no events, it waits for the
// whole time.
func (w *MemoryWatch) Wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if w.events == nil {
		<-ctx.Done()
		return
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		w.events.SetReadDeadline(time.Unix(1, 0))
		close(woken)
	})
	var count [8]byte
	w.events.Read(count[:])
	if !stop() {
		<-woken // otherwise the deadline set there would end the next wait
	}
	w.events.SetReadDeadline(time.Time{})
}

// Events reports whether the kernel signals when the group crosses the soft limit.
func (w *MemoryWatch) Events() bool { return w.events != nil }

// SetSoft changes the memory usage above which the kernel slows the group down. Version 1 does not support this.
func (w *MemoryWatch) SetSoft(bytes int64) error {
	if w.group.tree.v1() {
		return nil
	}
	return put(w.group.dirs()[0], "memory.high", strconv.FormatInt(bytes, 10))
}

// SetMemory changes the group's limit, up or down. Raising it wakes processes that wait for memory.
func (g *Group) SetMemory(bytes int64) error {
	text := strconv.FormatInt(bytes, 10)
	if !g.tree.v1() {
		return put(g.dirs()[0], "memory.max", text)
	}
	dir := g.dir("memory")
	// The limit with swap must not be below that of memory: the limit with swap is raised first and lowered last.
	swap := optional(put(dir, "memory.memsw.limit_in_bytes", text))
	err := put(dir, "memory.limit_in_bytes", text)
	if swap != nil && err == nil {
		swap = optional(put(dir, "memory.memsw.limit_in_bytes", text))
	}
	return errors.Join(swap, err)
}

// Close ends the watch. What Hold has set stays in force.
func (w *MemoryWatch) Close() {
	if w.events != nil {
		w.events.Close()
	}
	for _, f := range w.files {
		f.Close()
	}
}

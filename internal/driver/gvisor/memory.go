package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/delay"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/driver/memguard"
	"hutch/internal/linux/cgroup"
)

var (
	_ driver.Guarded   = (*instance)(nil)
	_ driver.FileSaver = (*instance)(nil)
)

// limits returns the limits of the instance's memory. When the instance approaches the hard limit, the daemon raises
// the kernel's limit, up to the last limit. There the kernel slows the sandbox down.
func (i *instance) limits() memguard.Limits { return memguard.LimitsOf(i.procs.Memory) }

// GuardMemory implements driver.Guarded.
func (i *instance) GuardMemory(ctx context.Context, relieve func(ctx context.Context, used int64, urgent bool) (bool, error)) error {
	if i.procs.Memory == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-i.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	m := &memory{instance: i}
	if i.group != nil {
		watch, err := i.memoryWatch(ctx)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		defer watch.Close()
		if err := watch.Hold(); err != nil {
			return ignoreEnd(ctx, err)
		}
		m.watch = watch
	}
	return ignoreEnd(ctx, memguard.Run(ctx, m, i.limits(), relieve))
}

// beginMemoryWatch begins the watch for the first call of GuardMemory, in advance: beginning it takes tens of
// milliseconds, which would delay every create in a burst of creates from the pool.
func (i *instance) beginMemoryWatch() {
	defer close(i.early)
	if i.group == nil || i.procs.Memory == 0 {
		return
	}
	if watch, err := i.group.WatchMemory(i.limits().Soft); err == nil { // otherwise GuardMemory tries again
		i.early <- watch
	}
}

// memoryWatch returns the watch that beginMemoryWatch began, or a new one if that watch does not exist or an earlier
// call has taken it.
func (i *instance) memoryWatch(ctx context.Context) (*cgroup.MemoryWatch, error) {
	select {
	case watch, ok := <-i.early:
		if ok {
			return watch, nil
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return i.group.WatchMemory(i.limits().Soft)
}

// dropMemoryWatch closes the watch that beginMemoryWatch began, unless GuardMemory has taken it.
func (i *instance) dropMemoryWatch() {
	for watch := range i.early {
		watch.Close()
	}
}

// ignoreEnd drops the errors of an instance that has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// memory is the memory of an instance.
type memory struct {
	*instance
	watch *cgroup.MemoryWatch // nil without control groups
	extra int64               // by how much the hard limit is raised at present
	file  string              // see memoryFile
}

// Read implements memguard.Memory.
func (m *memory) Read() (cgroup.MemoryReading, error) {
	if m.watch != nil {
		return m.watch.Read()
	}
	used := m.memoryFile() + m.procs.Sentry.anonymous() + m.procs.Gofer.anonymous()
	return cgroup.MemoryReading{Charged: used, Used: used}, nil
}

// memoryFile returns the size of the file that holds the memory inside. It uses a descriptor of the sentry whose number
// never changes.
func (m *memory) memoryFile() int64 {
	if m.file == "" {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.procs.Sentry.PID))
		for _, fd := range fds {
			if name, _ := os.Readlink(fd); isMemoryFile(name) {
				m.file = fd
			}
		}
	}
	var st unix.Stat_t
	if name, _ := os.Readlink(m.file); !isMemoryFile(name) || unix.Stat(m.file, &st) != nil {
		m.file = ""
		return 0
	}
	return st.Blocks * 512
}

// Wait implements memguard.Memory. If the kernel reports the soft limit, readings are needed only above it, because
// there cached files hide the growth.
func (m *memory) Wait(ctx context.Context, last cgroup.MemoryReading, limit int64) {
	switch {
	case m.watch == nil:
		delay.Wait(ctx, memguard.Until(last.Used, limit))
	case m.watch.Events() && last.Charged < m.limits().Soft:
		m.watch.Wait(ctx, time.Minute)
	default:
		m.watch.Wait(ctx, memguard.Until(last.Used, limit))
	}
}

// Begin implements memguard.Memory. It raises the soft limit, because otherwise the kernel would also slow down the
// agent while it ends programs.
func (m *memory) Begin() {
	if m.watch != nil {
		m.watch.SetSoft(m.limits().Hard - memguard.Tolerance)
	}
}

// Collect implements memguard.Memory. The content of pipes and sockets, and names of files, that programs no longer use
// are garbage of the sentry.
func (m *memory) Collect() bool {
	m.sentry.Signal(contract.Collect)
	return true
}

// Raise implements memguard.Memory. It must do so before the kernel throttles the sandbox, because then system calls of
// the sentry fail.
func (m *memory) Raise(last cgroup.MemoryReading) bool {
	limits := m.limits()
	most := limits.Last() - limits.Hard
	if m.watch == nil || !last.Held && last.Charged < limits.Hard+m.extra-memguard.Headroom {
		return true
	}
	if m.extra >= most {
		return !last.Held
	}
	m.extra = min(m.extra+memguard.Headroom, most)
	return m.group.SetMemory(limits.Hard+m.extra) == nil
}

// End implements memguard.Memory.
func (m *memory) End(limit int64) {
	if m.watch != nil {
		m.watch.SetSoft(limit)
	}
	if m.extra > 0 && m.group.SetMemory(m.limits().Hard) == nil {
		m.extra = 0
	}
}

// SaveFiles implements driver.FileSaver. The sandbox can be at its limit: stopped programs need no more memory, and
// writing the files needs only a little.
func (i *instance) SaveFiles(ctx context.Context, dir string) error {
	if i.group != nil && i.procs.Memory > 0 { // otherwise the kernel enforces the limit
		if err := i.group.SetMemory(i.limits().Last()); err != nil {
			return err
		}
	}
	if err := i.control().call(ctx, contract.Pause, nil, nil); err != nil {
		return err
	}
	if err := i.copyFiles(ctx, dir); err != nil {
		return err
	}
	return syncAll(dir)
}

package agent

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"hutch/internal/wire"
)

// All logs together can take 1/spillShare of their file system, and one log 1/spillEach of that. If that file system
// is in the sandbox's memory, so are the logs.
const (
	spillShare = 16
	spillEach  = 4
	maxSpills  = spillEach * (wire.MaxLog - wire.LogSize)
	spillStep  = 1 << 20 // a file grows by that much
)

// spills is the disk space for the older parts of logs.
type spills struct {
	dir  string
	all  int64
	each int64

	mu   sync.Mutex
	free int64
}

func newSpills(dir string) *spills {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return &spills{dir: dir}
	}
	room := min(int64(fs.Blocks)*fs.Bsize/spillShare, maxSpills)
	return &spills{dir: dir, all: room, each: room / spillEach, free: room}
}

// take reserves n bytes, and returns false if fewer are free.
func (s *spills) take(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free < n {
		return false
	}
	s.free -= n
	return true
}

func (s *spills) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
}

// spill is the part of a log that is too old for memory, in a file without a name. The file grows as far as allowed,
// and is then a ring buffer.
type spill struct {
	room *spills
	file *os.File
	base int64 // cursor of the byte that was written first
	size int64
	full bool // it grows no more
}

// open returns an empty spill for output from cursor on, or nil if there is no space for it.
func (s *spills) open(cursor int64) *spill {
	file, err := unnamedFile(s.dir)
	if err != nil {
		return nil
	}
	sp := &spill{room: s, file: file, base: cursor}
	if sp.grow(); sp.size == 0 {
		sp.close()
		return nil
	}
	return sp
}

// ownDir is a folder that only the agent can enter. It exists in sandboxes where the agent has an id that no command
// has, and where the agent can create the folder.
const ownDir = "/.hutch/log"

// unnamedFile creates a file that no other process can open. If the kernel cannot create one without a name (gVisor),
// the file has a name for a moment, in a folder where no program can replace it.
func unnamedFile(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err == nil || !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.ENOENT) {
		return f, err
	}
	if id := os.Geteuid(); (id == 0 || id == wire.AgentID) && dir == tempDir {
		if err := os.MkdirAll(ownDir, 0o700); err != nil {
			return nil, err
		}
		dir = ownDir
	}
	if f, err = os.CreateTemp(dir, "hutch-log-"); err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// grow adds a step. The file's space is reserved before anything is written.
func (s *spill) grow() {
	if s.size+spillStep > s.room.each || !s.room.take(spillStep) {
		s.full = true
		return
	}
	if unix.Fallocate(int(s.file.Fd()), 0, s.size, spillStep) != nil {
		s.room.release(spillStep)
		s.full = true
		return
	}
	s.size += spillStep
}

// write adds data at cursor, where the last write ended; it is at most one step long.
func (s *spill) write(cursor int64, b []byte) error {
	if !s.full && cursor+int64(len(b)) > s.base+s.size {
		s.grow()
	}
	for len(b) > 0 {
		at := (cursor - s.base) % s.size
		n := min(int64(len(b)), s.size-at)
		if _, err := s.file.WriteAt(b[:n], at); err != nil {
			return err
		}
		cursor, b = cursor+n, b[n:]
	}
	return nil
}

// read reads data at cursor, or the first part of it.
func (s *spill) read(cursor int64, size int64, buf []byte) (int, error) {
	at := (cursor - s.base) % size
	return s.file.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
}

func (s *spill) close() {
	s.file.Close()
	s.room.release(s.size)
}

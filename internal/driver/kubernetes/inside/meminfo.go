package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Programs choose their sizes by the memory that they see, in /proc/meminfo and in files of control groups. In these
// files a pod shows the memory of its machine, or its own limit, which includes reserves. So files with the limit of
// the programs are mounted over them. The system call sysinfo cannot be corrected.

const meminfoFile = "meminfo" // in memoryDir

// limitFiles are the files with the limit of a control group, of either version.
var limitFiles = []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}

// showLimit mounts files with the limit over the files of the container that show a limit.
func (r rootMaker) showLimit(limit int64) error {
	if limit == 0 { // from an earlier version of the server
		return nil
	}
	texts := map[string]string{"proc/" + meminfoFile: meminfo(limit, limit)}
	for _, path := range limitFiles {
		texts[path] = fmt.Sprintln(limit)
	}
	for path, text := range texts {
		over, own := filepath.Join(r.root, path), filepath.Join(memoryDir, filepath.Base(path))
		if _, err := os.Lstat(over); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		// The first process, which is root without capabilities, opens one of these files to write.
		if err := errors.Join(os.WriteFile(own, []byte(text), 0o644), os.Chmod(own, 0o644), bind(own, over)); err != nil {
			return err
		}
	}
	return nil
}

// meminfo returns the content of /proc/meminfo for a limit, in bytes. Its length is always the same, so that the
// content can be replaced while a program reads it.
func meminfo(limit, free int64) string {
	free = min(max(free, 0), limit)
	used := limit - free
	var b strings.Builder
	for _, line := range []struct {
		name  string
		bytes int64
	}{
		{"MemTotal", limit}, {"MemFree", free}, {"MemAvailable", free}, {"Buffers", 0}, {"Cached", 0}, {"SwapCached", 0},
		{"Active", used}, {"Inactive", 0}, {"Active(anon)", used}, {"Inactive(anon)", 0}, {"Active(file)", 0}, {"Inactive(file)", 0},
		{"Unevictable", 0}, {"Mlocked", 0}, {"SwapTotal", 0}, {"SwapFree", 0}, {"Dirty", 0}, {"Writeback", 0},
		{"AnonPages", used}, {"Mapped", 0}, {"Shmem", 0}, {"Slab", 0}, {"SReclaimable", 0}, {"SUnreclaim", 0},
	} {
		fmt.Fprintf(&b, "%-16s%11d kB\n", line.name+":", line.bytes>>10)
	}
	return b.String()
}

// openMeminfo opens the file that programs see as /proc/meminfo; nil if they see the container's. memory is a
// descriptor of the file system that contains the file.
func openMeminfo(memory int) *os.File {
	fd, err := unix.Openat(memory, meminfoFile, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), meminfoFile)
}

// showUse writes the present amount of free memory into the file of openMeminfo. Memory that the instance itself took
// at its start does not count as used.
func (p *pod) showUse(used int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.meminfo == nil {
		return
	}
	if text := meminfo(p.limit, p.limit-(used-p.own)); text != p.shown {
		if _, err := p.meminfo.WriteAt([]byte(text), 0); err == nil {
			p.shown = text
		}
	}
}

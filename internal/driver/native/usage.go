package native

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"hutch/internal/driver"
)

// Usage reads the control group and the file system in memory; if there is no group, it reads the kernel's table of
// processes.
func (i *instance) Usage(context.Context) (driver.Usage, error) {
	disk := i.disk()
	if i.group == nil {
		u := add(descendants(i.record.PID))
		u.Disk, u.Memory = disk, u.Memory+disk
		return u, nil
	}
	g, err := i.group.Usage()
	if err != nil {
		return driver.Usage{}, fmt.Errorf("read the use of native sandbox %s: %w", i.id, err)
	}
	return driver.Usage{
		CPUSeconds: g.CPU.Seconds(), Memory: g.Memory, MemoryPeak: g.MemoryPeak,
		PIDs: g.PIDs, OOMKills: g.OOMKills, Disk: disk,
	}, nil
}

// disk returns the size of the written files, without a layer below them. The root of the first process is the file
// system that we created. No program inside can change that: the path to it contains none of their names, and a file
// system in memory always answers.
func (i *instance) disk() int64 {
	var st unix.Statfs_t
	err := unix.Statfs(fmt.Sprintf("/proc/%d/root", i.record.PID), &st)
	if err != nil || st.Type != unix.TMPFS_MAGIC && st.Type != unix.OVERLAYFS_SUPER_MAGIC || i.process.Dead() { // the number can be another process's
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// stat is the entry of a process in /proc.
type stat struct {
	parent, threads int
	ticks           int64 // CPU time, including that of reaped children
	private         int64 // bytes of memory that the process does not share
}

// add adds up the figures. The figures of an ended process are included in its parent's, and orphans belong to the
// instance's first process.
func add(processes []stat) (u driver.Usage) {
	const ticksPerSecond = 100 // USER_HZ, the same on every machine
	for _, p := range processes {
		u.CPUSeconds += float64(p.ticks) / ticksPerSecond
		u.Memory += p.private
		u.PIDs += p.threads
	}
	return u
}

// descendants returns a process and all its descendants.
func descendants(pid int) []stat {
	entries, _ := os.ReadDir("/proc")
	all := map[int]stat{}
	children := map[int][]int{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := readStat(n); ok {
			all[n] = s
			children[s.parent] = append(children[s.parent], n)
		}
	}
	var found []stat
	for next := []int{pid}; len(next) > 0; {
		n := next[0]
		next = next[1:]
		if s, ok := all[n]; ok {
			delete(all, n) // avoids cycles, because the table changes while it is read
			found, next = append(found, s), append(next, children[n]...)
		}
	}
	return found
}

// readStat reads two files of proc(5).
func readStat(pid int) (s stat, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	line, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return s, false
	}
	f := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:]) // the name can contain anything
	if len(f) < 18 {
		return s, false
	}
	s.parent, s.threads = int(number(f[1])), int(number(f[17]))
	s.ticks = number(f[11]) + number(f[12]) + number(f[13]) + number(f[14])
	memory, err := os.ReadFile(dir + "/statm")
	if m := bytes.Fields(memory); err == nil && len(m) > 2 {
		s.private = (number(m[1]) - number(m[2])) * int64(os.Getpagesize())
	}
	return s, true
}

func number(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}

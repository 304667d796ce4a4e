package inside

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// groups is the folder in which a container sees its own control groups.
const groups folder = "/sys/fs/cgroup"

// usage reads what the container uses: from its control groups or, if these have no figures, as the sum of its
// processes.
func (p *pod) usage() Usage {
	u := groupUsage()
	if u.CPUSeconds == 0 || u.Memory == 0 || u.PIDs == 0 {
		sum := processUsage("/proc")
		if u.CPUSeconds == 0 {
			u.CPUSeconds = sum.CPUSeconds
		}
		if u.Memory == 0 {
			u.Memory = sum.Memory
		}
		if u.PIDs == 0 {
			u.PIDs = sum.PIDs
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var st unix.Statfs_t
	if p.memory >= 0 && unix.Fstatfs(p.memory, &st) == nil {
		u.Disk = int64(st.Blocks-st.Bfree) * st.Bsize
	}
	return u
}

func groupUsage() Usage {
	if _, err := os.Stat(filepath.Join(string(groups), "cgroup.controllers")); err == nil { // version 2
		return Usage{
			CPUSeconds: float64(field(groups.read("cpu.stat"), "usage_usec")) / 1e6, Memory: groups.memoryInUse(memory2), MemoryPeak: groups.number("memory.peak"),
			PIDs: int(groups.number("pids.current")), OOMKills: int(field(groups.read("memory.events"), "oom_kill")),
		}
	}
	return Usage{
		CPUSeconds: float64(groups.number("cpuacct/cpuacct.usage")) / 1e9, Memory: groups.memoryInUse(memory1), MemoryPeak: groups.number("memory/memory.max_usage_in_bytes"),
		PIDs: int(groups.number("pids/pids.current")), OOMKills: int(field(groups.read("memory/memory.oom_control"), "oom_kill")),
	}
}

// memoryFiles are the names of a control group's files about memory, with the prefix of the figures in stat.
type memoryFiles struct{ stat, charged, prefix string }

// These are the names by version of control groups.
var (
	memory1 = memoryFiles{"memory/memory.stat", "memory/memory.usage_in_bytes", "total_"}
	memory2 = memoryFiles{"memory.stat", "memory.current", ""}
)

// memoryInUse returns the memory of the group without cached files, because the kernel can drop those.
func (f folder) memoryInUse(names memoryFiles) int64 {
	stat := f.read(names.stat)
	return max(f.number(names.charged)-field(stat, names.prefix+"active_file")-field(stat, names.prefix+"inactive_file"), 0)
}

// folder is a folder with files of the kernel.
type folder string

// read returns the content of a file, or "" if the file cannot be read.
func (f folder) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(string(f), name))
	return string(text)
}

// number reads a file that contains one number. It returns 0 if that fails.
func (f folder) number(name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(f.read(name)), 10, 64)
	return n
}

// field returns the number after a key, in a text of keys and numbers.
func field(text, key string) int64 {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == key {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
		}
	}
	return 0
}

// ticks is the number of clock ticks in a second, which is the same on every Linux.
const ticks = 100

// processUsage adds up what the processes of a proc file system use. The usage of ended processes is included in that
// of their parents.
func processUsage(proc string) (u Usage) {
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue
		}
		// The name of the program is in parentheses, and can itself contain parentheses.
		name := bytes.LastIndex(text, []byte(") "))
		fields := strings.Fields(string(text[name+1:]))
		if name < 0 || len(fields) < 22 {
			continue
		}
		u.PIDs++
		for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
			n, _ := strconv.ParseFloat(fields[i], 64)
			u.CPUSeconds += n / ticks
		}
		pages, _ := strconv.ParseInt(fields[21], 10, 64)
		u.Memory += pages * int64(os.Getpagesize())
	}
	return u
}

package inside

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// groups is where a container sees its own control groups.
const groups = "/sys/fs/cgroup"

// usage reads what the container uses: from its control groups, or, where these say nothing, as the sum of its
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
	if _, err := os.Stat(groups + "/cgroup.controllers"); err == nil { // version 2
		return Usage{
			CPUSeconds: float64(field("cpu.stat", "usage_usec")) / 1e6, Memory: number("memory.current"), MemoryPeak: number("memory.peak"),
			PIDs: int(number("pids.current")), OOMKills: int(field("memory.events", "oom_kill")),
		}
	}
	return Usage{
		CPUSeconds: float64(number("cpuacct/cpuacct.usage")) / 1e9, Memory: number("memory/memory.usage_in_bytes"), MemoryPeak: number("memory/memory.max_usage_in_bytes"),
		PIDs: int(number("pids/pids.current")), OOMKills: int(field("memory/memory.oom_control", "oom_kill")),
	}
}

// number reads a file of one number; 0 if that is impossible.
func number(name string) int64 {
	text, err := os.ReadFile(filepath.Join(groups, name))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// field reads one line of a file of names and numbers.
func field(name, key string) int64 {
	text, err := os.ReadFile(filepath.Join(groups, name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+" "); ok {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

// ticks is the number of clock ticks in a second, which Linux reports the same everywhere.
const ticks = 100

// processUsage adds up what the processes of a proc file system use. What ended ones used is in their parents' figures.
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
		// The name of the program is in parentheses, and can contain some.
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

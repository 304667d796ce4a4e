package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/inside"
)

// Usage implements driver.Instance. It works until the instance is destroyed, so that the cause of the instance's death
// can be found.
func (i *instance) Usage(ctx context.Context) (driver.Usage, error) {
	u := driver.Usage{PIDs: i.pids(ctx)}
	memory, disk := i.procs.Sentry.backing()
	u.Disk = disk
	if i.group == nil {
		u.CPUSeconds = i.procs.Sentry.cpu() + i.procs.Gofer.cpu()
		u.Memory = memory + i.procs.Sentry.anonymous() + i.procs.Gofer.anonymous()
		return u, nil
	}
	g, err := i.group.Usage()
	if err != nil {
		return driver.Usage{}, fmt.Errorf("read usage: %w", err)
	}
	u.CPUSeconds, u.OOMKills = g.CPU.Seconds(), g.OOMKills
	u.Memory, u.MemoryPeak = g.Memory, g.MemoryPeak
	return u, nil
}

// pids asks the sentry how many processes and threads run inside, without the agent's reserve. The host's count
// would be of other processes.
func (i *instance) pids(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := i.control().readGroup(ctx, "pids", "pids.current")
	n, _ := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(0, n-inside.Threads)
}

// backing returns the disk space of two files of the sentry: memory is the size of the file that holds the sandbox's
// memory, and disk the size of the file that holds what its programs have written. Neither file has a name, so they are
// found among the sentry's open files.
func (p process) backing() (memory, disk int64) {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
	for _, fd := range fds {
		name, _ := os.Readlink(fd)
		var st unix.Stat_t
		switch {
		case isMemoryFile(name):
			if unix.Stat(fd, &st) == nil {
				memory = st.Blocks * 512
			}
		case strings.Contains(name, "/runsc-filestore-"):
			if unix.Stat(fd, &st) == nil {
				disk = st.Blocks * 512
			}
		}
	}
	return memory, disk
}

func isMemoryFile(name string) bool { return strings.HasPrefix(name, "/memfd:runsc-memory") }

// anonymous returns the size of the process's own memory.
func (p process) anonymous() int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// ticks is the kernel's USER_HZ, which is the same on every machine that runs gVisor.
const ticks = 100

// cpu returns the CPU time, in seconds, of the process and all its descendants.
func (p process) cpu() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var sum float64
	for i := 11; i < 15 && i < len(fields); i++ { // utime, stime, and both for reaped children
		n, _ := strconv.ParseFloat(fields[i], 64)
		sum += n / ticks
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.PID))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			pid, _ := strconv.Atoi(child)
			sum += process{PID: pid}.cpu()
		}
	}
	return sum
}

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// period is the period of the CPU limit in microseconds; it is the kernel's default.
const period = 100_000

func (g *Group) limit(l Limits) error {
	if g.tree.v1() {
		return g.limit1(l)
	}
	return g.limit2(l)
}

func (g *Group) limit2(l Limits) error {
	dir := g.dirs()[0]
	var errs []error
	if l.CPU > 0 {
		errs = append(errs, put(dir, "cpu.max", quota(l.CPU)+" "+strconv.Itoa(period)))
	}
	if l.Memory > 0 {
		errs = append(errs,
			put(dir, "memory.max", strconv.FormatInt(l.Memory, 10)),
			optional(put(dir, "memory.swap.max", "0"))) // the file does not exist without swap
	}
	if l.PIDs > 0 {
		errs = append(errs, put(dir, "pids.max", strconv.Itoa(l.PIDs)))
	}
	return errors.Join(errs...)
}

func (g *Group) limit1(l Limits) error {
	var errs []error
	if l.CPU > 0 {
		errs = append(errs,
			put(g.dir("cpu"), "cpu.cfs_period_us", strconv.Itoa(period)),
			put(g.dir("cpu"), "cpu.cfs_quota_us", quota(l.CPU)))
	}
	if l.Memory > 0 {
		// The order matters, because the limit with swap must not be below that of memory.
		bytes := strconv.FormatInt(l.Memory, 10)
		errs = append(errs,
			put(g.dir("memory"), "memory.limit_in_bytes", bytes),
			optional(put(g.dir("memory"), "memory.memsw.limit_in_bytes", bytes)),
			optional(put(g.dir("memory"), "memory.kmem.tcp.limit_in_bytes", strconv.FormatInt(buffers(l.Memory), 10))))
	}
	if l.PIDs > 0 {
		errs = append(errs, put(g.dir("pids"), "pids.max", strconv.Itoa(l.PIDs)))
	}
	return errors.Join(errs...)
}

// buffers returns how much the sockets of a group can hold on version 1. Version 1 counts sockets separately from
// memory, and only if this limit is set. Despite its name, the file covers TCP and UDP.
func buffers(memory int64) int64 { return max(memory/8, 8<<20) }

// quota returns the CPU time in a period; the kernel accepts no less than 1 ms.
func quota(cores float64) string {
	return strconv.Itoa(max(int(cores*period), 1000))
}

// optional drops the error of a file that this kernel does not have.
func optional(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Usage reads the group's usage. If the group is gone, it returns an error.
func (g *Group) Usage() (Usage, error) {
	if g.tree.v1() {
		return g.usage1()
	}
	return g.usage2()
}

// used returns current minus cache, but at least 0. The two are read at different moments, so cache can be larger.
func used(current, cache int64) int64 { return max(current-cache, 0) }

// cachedFiles returns the size of the cached files of a group. On version 1, the figures that include child groups have
// a prefix.
func (r *reader) cachedFiles(dir, prefix string) int64 {
	return r.field(dir, "memory.stat", prefix+"inactive_file") + r.field(dir, "memory.stat", prefix+"active_file")
}

func (g *Group) usage2() (Usage, error) {
	dir := g.dirs()[0]
	r := reader{}
	u := Usage{
		CPU:        time.Duration(r.field(dir, "cpu.stat", "usage_usec")) * time.Microsecond,
		Memory:     used(r.number(dir, "memory.current"), r.cachedFiles(dir, "")),
		MemoryPeak: r.number(dir, "memory.peak"), // since Linux 5.19
		PIDs:       int(r.number(dir, "pids.current")),
		OOMKills:   int(r.field(dir, "memory.events", "oom_kill")),
	}
	return u, r.end(dir)
}

func (g *Group) usage1() (Usage, error) {
	memory := g.dir("memory")
	r := reader{}
	u := Usage{
		CPU:        time.Duration(r.number(g.dir("cpuacct"), "cpuacct.usage")),
		Memory:     used(r.number(memory, "memory.usage_in_bytes"), r.cachedFiles(memory, "total_")),
		MemoryPeak: r.number(memory, "memory.max_usage_in_bytes"),
		PIDs:       int(r.number(g.dir("pids"), "pids.current")),
		OOMKills:   int(r.field(memory, "memory.oom_control", "oom_kill")),
	}
	return u, r.end(memory)
}

// reader reads numbers from a group's files. A missing file counts as 0; the first other error is kept.
type reader struct{ err error }

func (r *reader) number(dir, file string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(r.text(dir, file)), 10, 64)
	return n
}

// field reads the number after a name, in a file whose lines are "name number".
func (r *reader) field(dir, file, name string) int64 {
	for line := range strings.Lines(r.text(dir, file)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

func (r *reader) text(dir, file string) string {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if r.err == nil {
		r.err = ignoreAbsent(err)
	}
	return string(b)
}

// end returns the error of the reader. It also returns an error if the group is gone, which the reader cannot
// distinguish from missing files.
func (r *reader) end(dir string) error {
	if r.err != nil {
		return r.err
	}
	_, err := os.Stat(dir)
	return err
}

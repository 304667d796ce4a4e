package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Bounds returns the memory limit of this process's groups and the free part of it. If several groups have limits, it
// returns those of the group with the least free memory. Both are 0 if no visible group has a limit. The limit also
// applies to groups that this process makes, if they are children of its own group, as in a container.
func Bounds() (limit, free int64) { return tightest(home()) }

// Pressure returns how long the processes of this process's group have waited for memory, in the form of the kernel's
// pressure stall information. Only groups of version 2 have it.
func Pressure() (string, error) {
	for _, g := range home() { // its own group first
		if g.version == 2 {
			text, err := os.ReadFile(filepath.Join(g.dir, "memory.pressure"))
			return string(text), err
		}
	}
	return "", errors.ErrUnsupported
}

// home returns the groups in which this process began.
var home = sync.OnceValue(func() []memoryGroup { return memoryGroups("/proc/thread-self") })

// memoryGroup is the folder of a group that can have a limit.
type memoryGroup struct {
	version int
	dir     string
}

// memoryGroups returns the groups of a process, and all groups above them.
func memoryGroups(proc string) (groups []memoryGroup) {
	mounts, _ := readMounts(filepath.Join(proc, "mountinfo"))
	own, err := readOwn(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		controller := "" // version 2 has one group for all controllers
		if m.version == 1 {
			controller = "memory"
			if !slices.Contains(m.controllers, controller) {
				continue
			}
		}
		for dir := m.path(own[controller]); len(dir) > 1 && len(dir) >= len(m.dir); dir = filepath.Dir(dir) {
			groups = append(groups, memoryGroup{m.version, dir})
		}
	}
	return groups
}

func tightest(groups []memoryGroup) (limit, free int64) {
	for _, g := range groups {
		if l, f := g.room(); l > 0 && (limit == 0 || f < free) {
			limit, free = l, f
		}
	}
	return limit, free
}

// unlimited is below the value that version 1 has for no limit, and above any real size of memory.
const unlimited = 1 << 62

// memoryNames are the kernel's names for the limit, the usage, and the two kinds of cached files, by version.
var memoryNames = map[int][4]string{
	1: {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file"},
	2: {"memory.max", "memory.current", "active_file", "inactive_file"},
}

// room returns the limit of a group (0 if it has none) and the free part of the limit. Cached files count as free.
func (g memoryGroup) room() (limit, free int64) {
	r, names := reader{}, memoryNames[g.version]
	if limit = r.number(g.dir, names[0]); limit == 0 || limit >= unlimited {
		return 0, 0
	}
	files := r.field(g.dir, "memory.stat", names[2]) + r.field(g.dir, "memory.stat", names[3])
	return limit, limit - used(r.number(g.dir, names[1]), files)
}

package cgroup

import (
	"path/filepath"
	"slices"
	"sync"
)

// Bounds tells how many bytes of memory the groups of this process grant, and
// how many of those are free, by the group that has the fewest left. Both are 0
// where none has a limit, as far as is seen here. What is bound so are also the
// groups that this process makes, where they lie below: as in a container.
func Bounds() (limit, free int64) { return tightest(home()) }

// home are the groups that this process began in.
var home = sync.OnceValue(func() []memoryGroup { return memoryGroups("/proc/thread-self") })

// memoryGroup is the folder of a group that may have a limit.
type memoryGroup struct {
	version int
	dir     string
}

// memoryGroups are those that a process is in, and all that these are in.
func memoryGroups(proc string) (groups []memoryGroup) {
	mounts, _ := readMounts(filepath.Join(proc, "mountinfo"))
	own, err := readOwn(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		controller := "" // version 2 has one group for all of them
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

// unlimited is less than what version 1 shows for no limit, and more than there
// is of memory.
const unlimited = 1 << 62

// memoryNames are what the kernel calls the limit, what is used, and the files
// among that, by the version.
var memoryNames = map[int][4]string{
	1: {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file"},
	2: {"memory.max", "memory.current", "active_file", "inactive_file"},
}

// room reads a group's limit, 0 for none, and what is free of it. Files that the
// kernel keeps in memory count as free.
func (g memoryGroup) room() (limit, free int64) {
	r, names := reader{}, memoryNames[g.version]
	if limit = r.number(g.dir, names[0]); limit == 0 || limit >= unlimited {
		return 0, 0
	}
	files := r.field(g.dir, "memory.stat", names[2]) + r.field(g.dir, "memory.stat", names[3])
	return limit, limit - used(r.number(g.dir, names[1]), files)
}

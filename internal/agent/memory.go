package agent

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/wire"
)

const (
	// sentryOwn is roughly how much memory the sentry of an idle sandbox needs for itself.
	sentryOwn = 32 << 20
	// countTime bounds the time for counting open files, because there can be a million.
	countTime = 100 * time.Millisecond
	// maxHandle is the most that a pipe or a socket holds.
	maxHandle = 4 << 20
)

// relieve ends the tree that uses the most memory, and returns how many processes it ended.
func (a *agent) relieve(r wire.Relieve) wire.Relieved {
	a.relieving.Lock()
	defer a.relieving.Unlock()
	thaw := a.freezeMany()
	if thaw != nil {
		defer thaw()
	}
	v := a.largestVictim(r)
	if v == nil {
		return wire.Relieved{}
	}
	if v.run != nil {
		v.run.memory.Store(true)
	}
	for _, pid := range v.pids { // killed first, because they grow during the search of the tree
		syscall.Kill(pid, syscall.SIGKILL)
	}
	switch {
	case v.run != nil && v.all && thaw == nil:
		v.run.tree.kill()
	case v.run != nil:
		v.killRest(thaw != nil)
	}
	return wire.Relieved{Ended: len(v.pids)}
}

// If there are at least manyProcesses, the agent stops them before it examines them, because they could grow faster
// than it can examine them.
const manyProcesses = 24

// freezeMany stops all processes if there are many, until thaw is called.
func (a *agent) freezeMany() (thaw func()) {
	if !a.children.init || !a.opt.Alone {
		return nil
	}
	names, _ := os.ReadDir("/proc")
	if len(names) < manyProcesses+pseudo {
		return nil
	}
	return a.children.freeze()
}

// pseudo is about how many entries of /proc are not processes.
const pseudo = 24

// killRest kills the processes of a victim that are still alive. Unlike kill, it does not stop the tree first. frozen
// is set if the agent has stopped all processes.
func (v *victim) killRest(frozen bool) {
	tree := v.run.tree
	if frozen {
		tree = tree.frozen()
	}
	for end := time.Now().Add(killTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		left := tree.members()
		if !v.all {
			left = slices.DeleteFunc(left, func(pid int) bool { return pid == v.run.pid })
		}
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// victim is something that can be ended: a tree, or a tree without its root.
type victim struct {
	run     *running // nil for processes that belong to no known command
	all     bool     // the tree includes its root
	pids    []int
	mapped  int64 // bytes
	handles int   // pipes and sockets; their content belongs to no process
}

// largestVictim returns the victim that uses the most memory, or nil.
func (a *agent) largestVictim(r wire.Relieve) *victim {
	victims := a.victims()
	for _, v := range victims {
		for _, pid := range v.pids {
			v.mapped += resident(pid)
		}
	}
	if used := r.Used - sentryOwn; !explains(victims, used) { // much of the memory is in unnamed files, pipes and sockets
		weighHandles(victims, used-mapped(victims))
	}
	return choose(victims, r)
}

// choose returns the victim that uses the most memory. If most memory belongs to no process, it returns nil, because
// ending a program would not free that memory. Examples are a million files, and a program that has just ended, whose
// memory is freed a little later. If the need is urgent, choose returns the newest command, the most likely cause.
func choose(victims []*victim, r wire.Relieve) *victim {
	by := func(a, b *victim) int { return cmp.Compare(a.mapped, b.mapped) }
	if !explains(victims, r.Used-sentryOwn) {
		if !r.Urgent {
			return nil
		}
		by = func(a, b *victim) int { return cmp.Compare(slices.Max(a.pids), slices.Max(b.pids)) }
		victims = slices.DeleteFunc(victims, func(v *victim) bool { return v.run != nil && v.run.keeps && v.all })
	}
	if len(victims) == 0 {
		return nil
	}
	return slices.MaxFunc(victims, by)
}

// explains reports whether most of the used memory is known to belong to victims.
func explains(victims []*victim, used int64) bool { return mapped(victims) >= used/2 }

func mapped(victims []*victim) (sum int64) {
	for _, v := range victims {
		sum += v.mapped
	}
	return sum
}

// weighHandles adds the memory in unnamed files to the process that holds them, and divides the rest of the used
// memory among pipes and sockets.
func weighHandles(victims []*victim, rest int64) {
	seen, end, all := map[string]bool{}, time.Now().Add(countTime), 0
	for _, v := range victims {
		for _, pid := range v.pids {
			if time.Now().After(end) {
				break
			}
			bytes, handles := held(pid, seen)
			v.mapped += bytes
			v.handles += handles
			rest -= bytes
		}
		all += v.handles
	}
	for _, v := range victims {
		if all > 0 && rest > 0 {
			share := int64(float64(rest) * float64(v.handles) / float64(all))
			v.mapped += min(share, int64(v.handles)*maxHandle)
		}
	}
}

// held examines the open files of a process: the bytes in unnamed files that are not in seen, and the number of pipes
// and sockets.
func held(pid int, seen map[string]bool) (bytes int64, handles int) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	f, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		target, _ := os.Readlink(filepath.Join(dir, name))
		switch {
		case strings.HasPrefix(target, "pipe:"), strings.HasPrefix(target, "socket:"):
			handles++
		case strings.Contains(target, "memfd:"), strings.HasSuffix(target, " (deleted)"):
			var st unix.Stat_t
			if unix.Stat(filepath.Join(dir, name), &st) != nil {
				continue
			}
			key := strconv.FormatUint(st.Dev, 10) + ":" + strconv.FormatUint(st.Ino, 10)
			if !seen[key] {
				seen[key] = true
				bytes += st.Blocks * 512
			}
		}
	}
	return bytes, handles
}

// resident returns how many bytes of memory a process has.
func resident(pid int) int64 {
	var buf [128]byte
	f := strings.Fields(string(readSmall("/proc/"+strconv.Itoa(pid)+"/statm", buf[:])))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// victims groups all processes by the run that they belong to.
func (a *agent) victims() []*victim {
	a.mu.Lock()
	runs := slices.Collect(maps.Keys(a.procs))
	a.mu.Unlock()
	known := newFamily(runs)
	below := map[*running]*victim{} // by run: the processes that it has started
	self := map[*running]*victim{}  // the root of each run that keeps state
	strays := map[int]*victim{}
	for _, p := range known.all {
		if p.dead {
			continue
		}
		run, top := known.of(p)
		var v *victim
		switch {
		case run == nil:
			v = entry(strays, top, victim{all: true})
		case run.keeps && p.pid == run.pid:
			v = entry(self, run, victim{run: run, all: true})
		default:
			v = entry(below, run, victim{run: run, all: !run.keeps})
		}
		v.pids = append(v.pids, p.pid)
	}
	return slices.Concat(slices.Collect(maps.Values(below)), slices.Collect(maps.Values(self)), slices.Collect(maps.Values(strays)))
}

func entry[K comparable](m map[K]*victim, key K, fresh victim) *victim {
	if m[key] == nil {
		m[key] = &fresh
	}
	return m[key]
}

// family finds the run of each process, as a tree does, in one pass over all processes.
type family struct {
	all    map[int]process
	roots  map[int]*running // by pid
	marks  map[string]*running
	buffer []byte
}

func newFamily(runs []*running) *family {
	f := &family{all: map[int]process{}, roots: map[int]*running{}, marks: map[string]*running{}, buffer: make([]byte, 64<<10)}
	for _, r := range runs {
		if pid := r.root(); pid != 0 {
			f.roots[pid] = r
		}
		f.marks[r.tree.mark] = r
	}
	for _, p := range processes(map[int]bool{}, time.Time{}) {
		f.all[p.pid] = p
	}
	return f
}

// of returns the run of a process, or its topmost ancestor if it belongs to no run.
func (f *family) of(p process) (*running, int) {
	top := p
	for range len(f.all) {
		if r := f.roots[top.pid]; r != nil {
			return r, top.pid
		}
		if r := f.roots[top.session]; r != nil {
			return r, top.pid
		}
		parent, ok := f.all[top.parent]
		if !ok {
			break
		}
		top = parent
	}
	return f.marked(top), top.pid
}

// marked returns the run whose id is in a process's environment.
func (f *family) marked(p process) *running {
	env := readSmall("/proc/"+strconv.Itoa(p.pid)+"/environ", f.buffer)
	for kv := range strings.SplitSeq(string(env), "\x00") {
		if strings.HasPrefix(kv, wire.ProcessEnv+"=") {
			return f.marks[kv]
		}
	}
	return nil
}

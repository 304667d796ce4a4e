package agent

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hutch/internal/wire"
)

const (
	killTime = 20 * time.Second // longest time of a kill, within the daemon's limit
	// stopTime is how long a kill can try to stop a tree without disturbing others. A fork bomb leaves so little CPU
	// time that a look at the process table takes seconds.
	stopTime = 300 * time.Millisecond
)

// tree is a process and all processes that it started: its descendants, the processes of its session, and those with
// its id in the environment. As long as the root lives, all descendants are found, because the root is a subreaper;
// afterwards they are orphans of the agent. The other two ways find processes that the agent does not inherit.
type tree struct {
	root func() int // its pid; 0 when it has ended
	mark string     // KEY=id in the environment
	// freeze stops all processes until thaw is called. It is nil if some of them do not belong to the agent.
	freeze func() (thaw func())
	// left returns the orphans that the tree has left to the agent; leftNow is for the time after freeze. They are nil
	// if the agent inherits none.
	left, leftNow func(mark string) []int
}

func (a *agent) tree(id string, root func() int) tree {
	t := tree{root: root, mark: wire.ProcessEnv + "=" + id}
	if a.children.init && a.opt.Alone {
		t.freeze, t.left, t.leftNow = a.children.freeze, a.children.left, a.children.leftNow
	}
	return t
}

// frozen returns t for a caller that has called freeze, and not yet thaw.
func (t tree) frozen() tree {
	t.left = t.leftNow
	return t
}

// signalAll signals every process of the tree.
func (t tree) signalAll(sig syscall.Signal) {
	if sig == syscall.SIGKILL {
		t.kill()
		return
	}
	for _, pid := range t.members() {
		syscall.Kill(pid, sig)
	}
}

// kill ends the tree and returns when all processes are dead. It stops the tree first, to outrun a tree that forks all
// the time.
func (t tree) kill() {
	end := time.Now().Add(killTime)
	defer t.killRoot() // if /proc cannot be read
	c := newTreeScan(t)
	switch {
	case c.stopTree(time.Now().Add(stopTime)):
	case t.freeze != nil:
		defer t.freeze()()
		t = t.frozen()
		c.tree = t
		c.stopTree(end)
	default:
		c.stopTree(end)
	}
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids := t.members()
		if len(pids) == 0 || time.Now().After(end) {
			return
		}
		t.killMembers(pids)
		time.Sleep(pause)
	}
}

// killMembers kills the members of the tree; the root comes last, because it holds the tree together.
func (t tree) killMembers(pids []int) {
	if len(pids) > 1 && pids[0] == t.root() {
		pids = pids[1:]
	}
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (t tree) killRoot() {
	if root := t.root(); root != 0 {
		syscall.Kill(root, syscall.SIGKILL)
	}
}

// members returns the living processes of the tree, the root first.
func (t tree) members() []int {
	var pids []int
	for _, p := range newTreeScan(t).look(time.Time{}) {
		switch {
		case p.dead:
		case p.pid == t.root():
			pids = slices.Insert(pids, 0, p.pid)
		default:
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// treeScan finds the processes of a tree, in several looks at the process table.
type treeScan struct {
	tree
	in    map[int]bool // the known processes of the tree
	known map[int]bool // the examined processes, of the tree or not
}

func newTreeScan(t tree) *treeScan {
	return &treeScan{tree: t, in: map[int]bool{}, known: map[int]bool{}}
}

// stopTree stops the tree and reports whether it did so in time. A process with a pending stop cannot fork. The root
// is stopped first, so that it does not reap children that fork and end: as zombies, these show that there are more
// processes, and when they reach the limit of pids, there can be no more. The same call stops the root's process
// group, which is most of the tree.
func (c *treeScan) stopTree(end time.Time) bool {
	if root := c.root(); root != 0 {
		syscall.Kill(-root, syscall.SIGSTOP)
	}
	for calm := 0; calm < 3; calm++ {
		for _, p := range c.look(end) {
			syscall.Kill(p.pid, syscall.SIGSTOP)
			calm = -1
		}
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// look returns the processes of the tree that no earlier look found, including dead ones. It stops at end, unless
// that is zero.
func (c *treeScan) look(end time.Time) (found []process) {
	fresh := processes(c.known, end)
	var orphans []int
	if c.left != nil { // read after the process table, so it includes processes that have lost their parent since then
		orphans = c.left(c.mark)
	}
	take := func(belongs func(process) bool) {
		fresh = slices.DeleteFunc(fresh, func(p process) bool {
			if !belongs(p) {
				return false
			}
			c.in[p.pid] = true
			found = append(found, p)
			return true
		})
	}
	below := func() { // until no more processes have a parent inside
		for n := -1; n != len(found); {
			n = len(found)
			take(func(p process) bool { return c.in[p.parent] })
		}
	}
	if root := c.root(); root != 0 {
		take(func(p process) bool { return p.pid == root || p.session == root })
	}
	below()
	buf := make([]byte, 64<<10)
	take(func(p process) bool { return p.hasMark(c.mark, buf) })
	take(func(p process) bool { return slices.Contains(orphans, p.pid) })
	for _, pid := range orphans { // orphans that the process table has missed, in this look or an earlier one
		if !c.in[pid] {
			c.in[pid] = true
			found = append(found, process{pid: pid, parent: os.Getpid()})
		}
	}
	below()
	return found
}

// process is a line of the kernel's process table.
type process struct {
	pid, parent, session int
	dead                 bool
}

// processes reads the process table, without the known processes, and marks the ones that it returns as known. The
// newest come first, because those are the likeliest to run away. It stops at end, unless that is zero.
func processes(known map[int]bool, end time.Time) []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	self := os.Getpid()
	var all []process
	var buf [1024]byte
	for _, name := range slices.Backward(names) {
		if !end.IsZero() && time.Now().After(end) {
			break
		}
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self || known[pid] {
			continue
		}
		if p, ok := parseStat(pid, readSmall("/proc/"+name+"/stat", buf[:])); ok {
			known[pid] = true
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads "pid (name) state parent group session ...". The process chooses the name, which can contain
// brackets. A process whose first thread has ended looks like a zombie except for its number of threads.
func parseStat(pid int, stat []byte) (process, bool) {
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 18 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	threads, err3 := strconv.Atoi(f[17])
	dead := (f[0] == "Z" || f[0] == "X") && threads <= 1
	return process{pid, parent, session, dead}, errors.Join(err1, err2, err3) == nil
}

// hasMark reports whether KEY=VALUE was in the environment with which the process was started, as far as the agent can
// see it.
func (p process) hasMark(mark string, buf []byte) bool {
	if p.dead {
		return false
	}
	env := readSmall("/proc/"+strconv.Itoa(p.pid)+"/environ", buf)
	return bytes.HasPrefix(env, []byte(mark+"\x00")) || bytes.Contains(env, []byte("\x00"+mark+"\x00"))
}

// readSmall reads the part of a kernel file that fits, with plain system calls: during a fork bomb there are hundreds to
// read.
func readSmall(path string, buf []byte) []byte {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := syscall.Read(fd, buf[n:])
		if m <= 0 || err != nil {
			break
		}
		n += m
	}
	return buf[:n]
}

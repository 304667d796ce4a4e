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

// killTime bounds a kill, within what the daemon allows for it.
const killTime = 3 * time.Second

// tree is a process and all it started: what descends from it, what is in its
// session, and what bears its id. The first is certain while the root lives,
// being a subreaper; the others find what a root that ended left behind.
type tree struct {
	root func() int // its pid; 0 when it has ended
	mark string     // KEY=id in the environment
}

func newTree(id string, root func() int) tree {
	return tree{root, wire.ProcessEnv + "=" + id}
}

// signal signals every process of the tree.
func (t tree) signal(sig syscall.Signal) {
	if sig == syscall.SIGKILL {
		t.kill()
		return
	}
	for _, pid := range t.members() {
		syscall.Kill(pid, sig)
	}
}

// kill ends the tree and returns when all are dead.
func (t tree) kill() {
	end := time.Now().Add(killTime)
	t.stop(end)
	defer t.killRoot() // where there is no /proc to be read
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids := t.members()
		for _, pid := range slices.Backward(pids) { // the root last: it holds the tree together
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(pids) == 0 || time.Now().After(end) {
			return
		}
		time.Sleep(pause)
	}
}

func (t tree) killRoot() {
	if root := t.root(); root != 0 {
		syscall.Kill(root, syscall.SIGKILL)
	}
}

// stop stops the tree, to outrun one that forks all the time: a process with a
// pending stop can fork no more. The root comes first, so that nobody waits for
// those who fork and end: as zombies they tell that more are to be found, and
// at the limit of pids there can be no more.
func (t tree) stop(end time.Time) {
	c := census{tree: t, in: map[int]bool{}, known: map[int]bool{}}
	if root := t.root(); root != 0 {
		syscall.Kill(root, syscall.SIGSTOP)
		c.in[root], c.known[root] = true, true
	}
	for calm := 0; calm < 3 && time.Now().Before(end); calm++ {
		for _, p := range c.look() {
			syscall.Kill(p.pid, syscall.SIGSTOP)
			calm = -1
		}
	}
}

// members returns the living processes of the tree, the root first.
func (t tree) members() []int {
	c := census{tree: t, in: map[int]bool{}, known: map[int]bool{}}
	var pids []int
	for _, p := range c.look() {
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

// census counts a tree.
type census struct {
	tree
	in    map[int]bool // the tree, as far as it is known
	known map[int]bool // looked at, inside or not
}

// look returns the processes of the tree that no earlier look found, the dead
// among them.
func (c *census) look() (found []process) {
	fresh := processes(c.known)
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
	below := func() { // until nobody more has a parent inside
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
	take(func(p process) bool { return p.bears(c.mark, buf) })
	below()
	return found
}

// process is a line of the kernel's process table.
type process struct {
	pid, parent, session int
	dead                 bool
}

// processes reads the process table, but for those that are known already, and
// makes them known: the newest first, which are the likeliest to run away.
func processes(known map[int]bool) []process {
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
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self || known[pid] {
			continue
		}
		if p, ok := parseStat(pid, slurp("/proc/"+name+"/stat", buf[:])); ok {
			known[pid] = true
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads "pid (name) state parent group session ...". The name is the
// process's own choice, brackets and all. A process of which only the first
// thread has ended looks like a zombie but for its number of threads.
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

// bears reports whether the process was started with KEY=VALUE in its
// environment, as far as the agent may see it.
func (p process) bears(mark string, buf []byte) bool {
	if p.dead {
		return false
	}
	env := slurp("/proc/"+strconv.Itoa(p.pid)+"/environ", buf)
	return bytes.HasPrefix(env, []byte(mark+"\x00")) || bytes.Contains(env, []byte("\x00"+mark+"\x00"))
}

// slurp reads what fits of a file of the kernel, by plain system calls: there
// are hundreds to read while a fork bomb goes off.
func slurp(path string, buf []byte) []byte {
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

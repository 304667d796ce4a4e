package agent

import (
	"bytes"
	"os"
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

// kill ends the tree and returns when all are dead. To outrun a fork bomb it
// stops everything first: a process with a pending stop cannot fork any more,
// so when two looks in a row find nobody new, the tree is complete.
func (t tree) kill() {
	end := time.Now().Add(killTime)
	stopped := map[int]bool{}
	for calm := 0; calm < 2 && time.Now().Before(end); {
		calm++
		for _, pid := range t.members() {
			if !stopped[pid] {
				syscall.Kill(pid, syscall.SIGSTOP)
				stopped[pid] = true
				calm = 0
			}
		}
	}
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids := t.members()
		for i := len(pids) - 1; i >= 0; i-- { // the root last: it holds the tree together
			syscall.Kill(pids[i], syscall.SIGKILL)
		}
		if len(pids) == 0 || time.Now().After(end) {
			return
		}
		time.Sleep(pause)
	}
}

// members returns the living processes of the tree, the root first.
func (t tree) members() []int {
	all := processes()
	root := t.root()
	in := map[int]bool{root: root != 0}
	var pids []int
	if root != 0 {
		pids = append(pids, root)
	}
	take := func(p process) {
		if !in[p.pid] {
			in[p.pid] = true
			pids = append(pids, p.pid)
		}
	}
	for _, p := range all {
		if root != 0 && p.session == root || !in[p.pid] && p.bears(t.mark) {
			take(p)
		}
	}
	for n := -1; n != len(pids); { // until nobody more has a parent inside
		n = len(pids)
		for _, p := range all {
			if p.parent != 0 && in[p.parent] {
				take(p)
			}
		}
	}
	return living(pids, all)
}

// living drops zombies and what has gone: no signal reaches them.
func living(pids []int, all []process) []int {
	alive := map[int]bool{}
	for _, p := range all {
		alive[p.pid] = !p.dead
	}
	kept := pids[:0]
	for _, pid := range pids {
		if alive[pid] {
			kept = append(kept, pid)
		}
	}
	return kept
}

// process is a line of the kernel's process table.
type process struct {
	pid, parent, session int
	dead                 bool
}

// processes reads the process table.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	self := os.Getpid()
	var all []process
	var buf [1024]byte
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		if p, ok := parseStat(pid, slurp("/proc/"+name+"/stat", buf[:])); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads "pid (name) state parent group session ...". The name is the
// process's own choice, brackets and all.
func parseStat(pid int, stat []byte) (process, bool) {
	_, rest, ok := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), " ")
	f := strings.Fields(rest)
	if !ok || len(f) < 4 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	return process{pid, parent, session, f[0] == "Z" || f[0] == "X"}, err1 == nil && err2 == nil
}

// bears reports whether the process was started with KEY=VALUE in its
// environment, as far as the agent may see it.
func (p process) bears(mark string) bool {
	if p.dead {
		return false
	}
	env := slurp("/proc/"+strconv.Itoa(p.pid)+"/environ", make([]byte, 64<<10))
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

package agent

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphans are the children of the agent that it did not start, each with the marks of its possible trees.
//
// The root of a tree is a subreaper: its descendants stay below it as long as it lives. When it dies, the kernel gives
// its children to the agent, which is the first process of the namespace. When one of those children dies, the agent
// inherits that child's children, too. So a child that appears after a death belonged to a dead process. The agent
// examines its children after each death and before it forgets the dead process: no program can avoid that, because it
// cannot choose its parent.
type orphans map[int][]string

// childExit is a child that has ended.
type childExit struct {
	pid    int
	status syscall.WaitStatus
}

// mostLooks bounds how often one call of reapDead looks at the children, on a system where processes die all the time.
const mostLooks = 16

// reapDead reaps all dead children, records the trees of the orphans that they leave, and reports the ends of children
// that the agent has started. The caller holds starting.
func (c *children) reapDead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	dead := reapAll(nil)
	var alive []int
	for n, looks := 0, 0; n != len(dead) && looks < mostLooks; looks++ {
		n = len(dead)
		alive = c.list.readPIDs()
		dead = reapAll(dead) // a process that died since then can be the parent that left the children in alive
	}
	c.inherit(alive, c.marksOf(dead))
	for _, d := range dead {
		if end := c.ends[d.pid].end; end != nil {
			end <- d.status
		}
		delete(c.ends, d.pid)
		delete(c.orphans, d.pid)
	}
}

// marksOf returns the marks of the trees to which the dead processes belonged.
func (c *children) marksOf(dead []childExit) (marks []string) {
	for _, d := range dead {
		of := c.orphans[d.pid]
		if child, ok := c.ends[d.pid]; ok {
			of = []string{child.mark}
		}
		for _, mark := range of {
			if !slices.Contains(marks, mark) {
				marks = append(marks, mark)
			}
		}
	}
	return marks
}

// inherit records new children as orphans of the trees with the marks. If members of several trees died at once, a
// child with the mark of one of them belongs to that tree, and any other child to all of them.
func (c *children) inherit(alive []int, marks []string) {
	var buf []byte
	for _, pid := range alive {
		if _, known := c.orphans[pid]; known {
			continue
		}
		if _, known := c.ends[pid]; known {
			continue
		}
		of := marks
		if len(marks) > 1 {
			if buf == nil {
				buf = make([]byte, 64<<10)
			}
			hasMark := func(mark string) bool { return process{pid: pid}.hasMark(mark, buf) }
			if i := slices.IndexFunc(marks, hasMark); i >= 0 {
				of = marks[i : i+1]
			}
		}
		c.orphans[pid] = of
	}
}

// left returns the orphans of a tree.
func (c *children) left(mark string) []int {
	c.starting.Lock()
	defer c.starting.Unlock()
	return c.leftNow(mark)
}

// leftNow does the same as left, for callers that hold starting already, from freeze to thaw.
func (c *children) leftNow(mark string) (pids []int) {
	c.reapDead()
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid, marks := range c.orphans {
		if slices.Contains(marks, mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// list is the kernel's list of the children of the agent's first thread: all that the agent inherits, and some that it
// has started. It stays open, because it is read for each command.
type list struct {
	fd  int // -1 where the kernel has no such list
	buf []byte
}

func openList() list {
	path := "/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children"
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return list{fd, make([]byte, 4<<10)}
}

func (l *list) readPIDs() (pids []int) {
	n, err := syscall.Pread(l.fd, l.buf, 0)
	for n == len(l.buf) {
		l.buf = make([]byte, 2*n)
		n, err = syscall.Pread(l.fd, l.buf, 0)
	}
	if err != nil {
		return childrenByTable()
	}
	for word := range bytes.FieldsSeq(l.buf[:n]) {
		if pid, err := strconv.Atoi(string(word)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenByTable finds the children on kernels that do not list them.
func childrenByTable() (pids []int) {
	for _, p := range processes(map[int]bool{}, time.Time{}) {
		if p.parent == os.Getpid() {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// awaitExitOfChild returns when a child is dead. It does not reap the child.
func awaitExitOfChild() error {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != syscall.EINTR {
			return err
		}
	}
}

// reapAll reaps the children that are dead now.
func reapAll(dead []childExit) []childExit {
	for {
		var d childExit
		var err error
		d.pid, err = syscall.Wait4(-1, &d.status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || d.pid == 0:
			return dead
		default:
			dead = append(dead, d)
		}
	}
}

// Package cgroup bounds and kills groups of processes with the kernel's control groups, version 1 and version 2.
//
// A [Tree] is where this process can make groups. The caller of New names a [Group]. A Group holds no state except its
// name, and can be opened again by any later process. All groups are in one folder "hutch" of the tree, so [Tree.Sweep]
// finds what a killed daemon left behind.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// folder contains all groups; it is removed with the last group.
const folder = "hutch"

// Limits bound a group. Zero means no limit.
type Limits struct {
	CPU    float64 // cores
	Memory int64   // bytes, of memory and swap together
	PIDs   int     // processes and threads
}

// Usage is one reading of a group. Figures that the kernel does not report are 0.
type Usage struct {
	CPU        time.Duration // used since the group was made
	Memory     int64         // bytes now, without cached files: at the limit, the kernel drops those first
	MemoryPeak int64         // with cached files
	PIDs       int
	OOMKills   int // processes killed because memory ran out
}

// Group is one control group: one folder on version 2, one for each
// controller on version 1.
type Group struct {
	tree *Tree
	name string
}

// New makes a group with limits. No group with that name must exist.
func (t *Tree) New(name string, l Limits) (*Group, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name[0] == '.' {
		return nil, fmt.Errorf("control group name %q", name)
	}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	g := &Group{t, name}
	if err := g.make(l); err != nil {
		return nil, errors.Join(fmt.Errorf("make control group %s: %w", name, err), g.remove())
	}
	return g, nil
}

// make gives the group its folders and limits. After an error, a part of the group can remain.
func (g *Group) make(l Limits) error {
	for _, base := range g.tree.bases() {
		if err := mkdirIn(filepath.Join(base, folder), g.name); err != nil {
			return err
		}
	}
	return g.limit(l)
}

// mkdirIn makes dir/name. Another process can remove an empty dir at any moment, so mkdirIn makes dir again as often as
// needed. If another process has made dir, but has not yet enabled the controllers in it, mkdirIn does that.
func mkdirIn(dir, name string) error {
	for {
		err := os.Mkdir(filepath.Join(dir, name), 0o755)
		if err == nil {
			return enable(dir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := errors.Join(enable(dir), reserve(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// reserve limits the processes of all groups together, to leave a quarter of the machine's limit to other processes.
func reserve(dir string) error {
	file := filepath.Join(dir, "pids.max")
	if _, err := os.Stat(file); err != nil {
		return ignoreAbsent(err) // the folder of another controller
	}
	all := MaxPIDs()
	if all == 0 {
		return nil
	}
	return put(dir, "pids.max", strconv.Itoa(all*3/4))
}

// MaxPIDs returns how many processes and threads the machine can have; 0 if that is unknown.
func MaxPIDs() int {
	r := reader{}
	pids, threads := r.number("/proc/sys/kernel", "pid_max"), r.number("/proc/sys/kernel", "threads-max")
	return int(min(pids, threads))
}

// Open returns the group with that name, whether or not it exists.
func (t *Tree) Open(name string) *Group { return &Group{t, name} }

// Name returns the group's name.
func (g *Group) Name() string { return g.name }

// Exists reports whether any part of the group exists.
func (g *Group) Exists() bool {
	for _, dir := range g.dirs() {
		if _, err := os.Lstat(dir); err == nil {
			return true
		}
	}
	return false
}

// Limit changes limits. A zero in l leaves that limit unchanged.
func (g *Group) Limit(l Limits) error {
	if err := g.limit(l); err != nil {
		return fmt.Errorf("limit control group %s: %w", g.name, err)
	}
	return nil
}

// Add moves a process, with all its threads, into the group. On version 1 this can wait for a grace period of the
// kernel, up to 20 ms.
func (g *Group) Add(pid int) error {
	for _, dir := range g.dirs() {
		if err := put(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d to control group %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// FD opens the group for CLONE_INTO_CGROUP (syscall.SysProcAttr.UseCgroupFD), so that a process starts in the group at
// no cost. On version 1 the error is errors.ErrUnsupported. The caller closes the file.
func (g *Group) FD() (*os.File, error) {
	if g.tree.v1() {
		return nil, errors.ErrUnsupported
	}
	return os.OpenFile(g.dirs()[0], unix.O_PATH|unix.O_DIRECTORY, 0)
}

// Kill kills every process in the group, including processes that are being forked. It does not wait for their
// end; [Group.Remove] does.
func (g *Group) Kill() error {
	if !g.Exists() {
		return nil
	}
	if !g.tree.v1() {
		if err := put(g.dirs()[0], "cgroup.kill", "1"); err == nil {
			return nil
		} // Linux before 5.14 has no cgroup.kill: kill the processes one by one, as on version 1
	}
	// No process can fork any more, so one pass over the list finds all of them.
	dir := g.dir("pids")
	if err := put(dir, "pids.max", "0"); err != nil {
		return ignoreAbsent(err)
	}
	return errors.Join(ignoreAbsent(killAll(dir)), g.Thaw()) // a frozen process dies when it thaws
}

// killAll kills the processes in the group at dir. A pid can be reused between reading and killing it. So killAll first
// opens a pidfd, and then checks that the pid is still in the list.
func killAll(dir string) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	before, err := processes(dir)
	if err != nil {
		return err
	}
	for _, pid := range before {
		if pid == os.Getpid() {
			continue // a thread of Hutch that is in the group only to start a process: see Start
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		}
	}
	after, err := processes(dir)
	for _, pid := range after {
		if fd, ok := held[pid]; ok {
			err = errors.Join(err, ignoreGone(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)))
		}
	}
	return err
}

// Remove removes the group. It waits until the processes of the group are gone or ctx ends. A missing group counts as
// removed.
func (g *Group) Remove(ctx context.Context) error {
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := g.remove()
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove control group %s: %w", g.name, err)
		case <-time.After(wait):
		}
	}
}

func (g *Group) remove() error {
	g.removeFreezer()
	var errs error
	for i, dir := range g.dirs() {
		if err := ignoreAbsent(unix.Rmdir(dir)); err != nil {
			errs = errors.Join(errs, &fs.PathError{Op: "rmdir", Path: dir, Err: err})
			continue
		}
		// The common folder is removed with its last group; until then removal fails.
		_ = unix.Rmdir(filepath.Join(g.tree.bases()[i], folder))
	}
	return errs
}

// Names lists the groups whose names begin with prefix.
func (t *Tree) Names(prefix string) []string {
	seen := map[string]bool{}
	var names []string
	for _, base := range t.bases() {
		entries, _ := os.ReadDir(filepath.Join(base, folder))
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), prefix) && !seen[e.Name()] {
				seen[e.Name()] = true
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// Sweep kills and removes the groups whose names begin with prefix, except those for which keep returns true for the
// rest of the name. It returns how many it removed.
func (t *Tree) Sweep(ctx context.Context, prefix string, keep func(rest string) bool) (int, error) {
	var errs error
	n := 0
	for _, name := range t.Names(prefix) {
		if keep != nil && keep(strings.TrimPrefix(name, prefix)) {
			continue
		}
		g := t.Open(name)
		err := errors.Join(g.Kill(), g.Remove(ctx))
		if err == nil {
			n++
		}
		errs = errors.Join(errs, err)
	}
	return n, errs
}

// dirs returns the group's folders, each once: controllers can share one folder.
func (g *Group) dirs() []string {
	bases := g.tree.bases()
	dirs := make([]string, len(bases))
	for i, base := range bases {
		dirs[i] = filepath.Join(base, folder, g.name)
	}
	return dirs
}

// dir returns the folder that has a controller's files for the group.
func (g *Group) dir(controller string) string {
	return filepath.Join(g.tree.base(controller), folder, g.name)
}

func processes(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// put writes one value, in a single write as the kernel requires.
func put(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// ignoreAbsent drops errors that mean the group, or a process, is gone.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

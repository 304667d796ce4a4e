package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNone is the error if no groups can be made. The wrapping error has the reason and the fix.
var ErrNone = errors.New("no control groups")

// controllers are the controllers that a tree must have; cpuacct is part of cpu on version 2.
var controllers = []string{"cpu", "cpuacct", "memory", "pids"}

// leaf is the group for the tree's other processes on version 2, because only leaf groups can hold processes there.
const leaf = "hutch-daemon"

// Tree is the part of the host's hierarchy in which this process can make groups. The zero Tree is not usable; [Find]
// returns one.
type Tree struct {
	base2 string            // version 2: the folder that contains "hutch"
	base1 map[string]string // version 1: the same for each controller
	home1 []string          // version 1: the groups that this process is in

	mu       sync.Mutex
	prepared bool
}

// Find looks for the tree of this process and changes nothing. It prefers version 2. If systemd has delegated a group
// to this process, the tree is that group. Otherwise the tree for root is the visible root of the hierarchy, and other
// users have no tree: the error wraps [ErrNone].
//
// It reads the group of its own thread. The first thread, which represents the process, can be in a sandbox's group at
// the moment, to start a process there.
func Find() (*Tree, error) { return find("/proc/thread-self", os.Geteuid() == 0) }

func find(proc string, root bool) (*Tree, error) {
	mounts, err := readMounts(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil, err
	}
	own, err := readOwn(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.version == 2 && hasControllers(m.dir) {
			return find2(m, own[""], root)
		}
	}
	return find1(mounts, own)
}

// find2 chooses the base on version 2.
func find2(m mount, own string, root bool) (*Tree, error) {
	base := m.path(own)
	if filepath.Base(base) == leaf { // this process was moved there earlier
		base = filepath.Dir(base)
	}
	if root && !delegated(base) {
		base = m.dir
	}
	if !writable(base) || !hasControllers(base) {
		return nil, fmt.Errorf("%w: %s is not delegated to this user with the controllers cpu, memory and pids: %s", ErrNone, base, Advice())
	}
	return &Tree{base2: base}, nil
}

func find1(mounts []mount, own map[string]string) (*Tree, error) {
	bases, homes := map[string]string{}, map[string]string{}
	for _, m := range mounts {
		for _, c := range m.controllers {
			bases[c], homes[c] = m.dir, m.path(own[c])
		}
	}
	var home []string
	for _, c := range controllers {
		switch {
		case bases[c] == "":
			return nil, fmt.Errorf("%w: the %s controller is not mounted; "+
				"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)", ErrNone, c)
		case !writable(bases[c]):
			return nil, fmt.Errorf("%w: %s is not writable; run the server as root, or boot with cgroup v2 "+
				"(systemd.unified_cgroup_hierarchy=1)", ErrNone, bases[c])
		}
		if !slices.Contains(home, homes[c]) {
			home = append(home, homes[c])
		}
	}
	return &Tree{base1: bases, home1: home}, nil
}

// Version is 1 or 2.
func (t *Tree) Version() int {
	if t.v1() {
		return 1
	}
	return 2
}

func (t *Tree) v1() bool { return t.base2 == "" }

// base returns the path of the folder for one controller.
func (t *Tree) base(controller string) string {
	if t.v1() {
		return t.base1[controller]
	}
	return t.base2
}

// bases returns the folders of all controllers, each once, in a fixed order.
func (t *Tree) bases() []string {
	var dirs []string
	for _, c := range controllers {
		if dir := t.base(c); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// prepare makes version 2 enable its controllers in our groups. That requires a base without processes, unless the base
// is the root of the hierarchy. So prepare moves the processes to a leaf.
func (t *Tree) prepare() error {
	if t.v1() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.prepared {
		return nil
	}
	if err := enable(t.base2); err != nil {
		if err := moveIntoLeaf(t.base2); err != nil {
			return err
		}
		if err := enable(t.base2); err != nil {
			return fmt.Errorf("%w: hand down the controllers of %s: %w", ErrNone, t.base2, err)
		}
	}
	if err := enable(filepath.Join(t.base2, folder)); err != nil { // it can be unfinished
		return err
	}
	t.prepared = true
	return nil
}

// moveIntoLeaf moves the processes in a group into its leaf.
func moveIntoLeaf(dir string) error {
	to := filepath.Join(dir, leaf)
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	pids, err := processes(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		// Kernel threads and the processes of other users cannot be moved. The caller checks whether that matters.
		_ = put(to, "cgroup.procs", strconv.Itoa(pid))
	}
	return nil
}

// enable enables the controllers of a version 2 group in its children; on version 1 it does nothing.
func enable(dir string) error {
	const file = "cgroup.subtree_control"
	have, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || hasAll(string(have)) {
		return err
	}
	return put(dir, file, "+cpu +memory +pids")
}

func hasControllers(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && hasAll(string(b))
}

func hasAll(list string) bool {
	names := strings.Fields(list)
	return slices.Contains(names, "cpu") && slices.Contains(names, "memory") && slices.Contains(names, "pids")
}

// delegated reports whether systemd has delegated this group to its service (Delegate=yes).
func delegated(dir string) bool {
	var value [1]byte
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && n == 1 && value[0] == '1' {
			return true
		}
	}
	return false
}

func writable(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }

// mount is a mounted hierarchy.
type mount struct {
	version     int
	root, dir   string // root is the group whose files are at dir
	controllers []string
}

// path returns the folder of a group; a group that is not visible counts as the root.
func (m mount) path(group string) string {
	rel, err := filepath.Rel(m.root, group)
	if err != nil || strings.HasPrefix(rel, "..") {
		return m.dir
	}
	return filepath.Join(m.dir, rel)
}

func readMounts(path string) ([]mount, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var mounts []mount
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m, ok := parseMount(lines.Text()); ok {
			mounts = append(mounts, m)
		}
	}
	return mounts, nil
}

// parseMount reads a line of mountinfo (proc_pid_mountinfo(5)):
//
//	36 35 0:32 /root /dir rw - cgroup cgroup rw,cpu,cpuacct
func parseMount(line string) (mount, bool) {
	left, right, ok := strings.Cut(line, " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !ok || len(l) < 5 || len(r) < 3 {
		return mount{}, false
	}
	m := mount{root: l[3], dir: l[4]}
	switch r[0] {
	case "cgroup2":
		m.version = 2
	case "cgroup":
		m.version, m.controllers = 1, strings.Split(r[2], ",")
	}
	return m, m.version != 0
}

// readOwn returns the group of a process for each controller; the key for version 2 is "".
func readOwn(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if p := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(p) == 3 {
			for c := range strings.SplitSeq(p[1], ",") {
				own[c] = p[2]
			}
		}
	}
	return own, nil
}

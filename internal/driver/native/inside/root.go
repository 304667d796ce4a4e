package inside

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/mount"
	"hutch/internal/linux/names"
)

// The root is a file system in memory, with the image's folders mounted into it. That is faster to create and to use
// than one overlay over everything. It works because no program inside can write to the image's folders anyway.

// own is a folder of the root that no program can write to. It holds files that are mounted over other files.
const own = "/.hutch"

// Device is a device node.
type Device struct {
	Name         string
	Major, Minor uint32
}

// Devices are the device nodes of an instance.
var Devices = []Device{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

// hidden are files and folders of /proc that reveal the host, or reach it. Each is covered by an empty file or folder
// of our own. It is not covered by /dev/null, because the host's /dev/null could be another file.
var hidden = []string{
	"acpi", "asound", "buddyinfo", "bus", "cgroups", "cmdline", "config.gz", "diskstats", "driver", "fb", "fs", "interrupts", "iomem", "ioports", "irq",
	"kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats",
	"modules", "partitions", "pressure", "sched_debug", "schedstat", "scsi", "slabinfo", "softirqs", "sysrq-trigger", "timer_list", "tty",
	"vmallocinfo", "vmstat", "zoneinfo",
}

// terminals is how many pseudo terminals an instance can have. The whole machine has a few thousand.
const terminals = 64

// AttachPoint is the folder where the new root is mounted until it becomes the root. The folder exists wherever this
// program can start, and the mount hides nothing that we need.
const AttachPoint = "/proc"

func makeRoot(c Config) error {
	unix.Umask(0)
	defer unix.Umask(0o022)
	host, err := openDevices(c) // the following mounts hide them
	if err != nil {
		return err
	}
	root, err := newRoot(c)
	if err != nil {
		return err
	}
	defer root.Close()
	sources, err := openBinds(c.Binds)
	if err != nil {
		return err
	}
	proc, err := newProc()
	if err != nil {
		return err
	}
	if err := applySettings(c, proc); err != nil {
		return err
	}
	if !c.Layered && c.Image == nil {
		if err := root.AttachTo(AttachPoint); err != nil {
			return err
		}
	}
	bench, err := newBench(proc)
	if err != nil {
		return err
	}
	b := builder{root: root, config: c, bench: bench}
	b.fill()
	b.makeOwn()
	for i, t := range sources {
		b.show(i, t)
	}
	b.sealOwn()
	b.attach(b.ownDevices(host), proc)
	b.hide()
	if b.err != nil {
		return b.err
	}
	return root.Pivot()
}

// newRoot creates the root, or finds the one that the daemon has attached.
func newRoot(c Config) (mount.Tree, error) {
	if c.Layered {
		fd, err := unix.Open(AttachPoint, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return mount.Tree(fd), os.NewSyscallError("open the root", err)
	}
	if c.Image != nil {
		return newImageRoot(c)
	}
	return newMemory(c, "0555")
}

// openDevices opens the host's device nodes, if the instance gets no nodes of its own.
func openDevices(c Config) ([]mount.Tree, error) {
	if c.Devices != 0 {
		return nil, nil
	}
	trees := make([]mount.Tree, len(Devices))
	for i, d := range Devices {
		var err error
		if trees[i], err = mount.Device("/dev/"+d.Name, d.Major, d.Minor); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

// ownDevices returns the device nodes that the daemon has created for this instance or, without such nodes, those of
// the host.
func (b *builder) ownDevices(host []mount.Tree) []mount.Tree {
	if b.err != nil || b.config.Devices == 0 {
		return host
	}
	all := mount.Tree(b.config.Devices)
	defer all.Close()
	b.do("lay out", "the devices", b.bench.lay(all, "devices", true))
	trees := make([]mount.Tree, len(Devices))
	for i, d := range Devices {
		var err error
		if trees[i], err = all.Sub("/"+d.Name, 0); err != nil {
			b.do("copy the mount of", d.Name, err)
		}
	}
	return trees
}

func openBinds(binds []Bind) ([]mount.Tree, error) {
	trees := make([]mount.Tree, len(binds))
	for i, b := range binds {
		trees[i] = mount.Tree(b.Tree)
		if b.Tree != 0 {
			continue
		}
		var err error
		if trees[i], err = mount.Clone(b.Source, mount.ReadOnly|mount.NoSUID|mount.NoDev); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

// newProc mounts a /proc in which the user sees only its own processes.
func newProc() (mount.Tree, error) {
	const attributes = mount.NoSUID | mount.NoDev | mount.NoExec
	return mount.New("proc", attributes, [2]string{"hidepid", "2"})
}

// builder fills the new root. After the first error it does nothing more.
type builder struct {
	root   mount.Tree
	config Config
	bench  *bench
	err    error
}

// fill creates the root's own files.
func (b *builder) fill() {
	for _, f := range b.config.Folders {
		if b.mkdir(f.Path, f.Mode) && f.User && b.config.Privileged {
			b.do("give away", f.Path, unix.Fchownat(int(b.root), rel(f.Path), b.config.User, b.config.Group, 0))
		}
	}
	for _, l := range b.config.Links {
		b.symlink(l.Target, l.Path)
	}
	for _, path := range b.config.Files {
		b.write(path, "")
	}
	b.fillDev()
	b.fillSys()
}

func (b *builder) fillDev() {
	b.mkdir("/dev", 0o555)
	b.mkdir("/dev/pts", 0o555)
	b.mkdir("/dev/shm", 0o1777)
	for _, d := range Devices {
		b.write("/dev/"+d.Name, "")
	}
	b.symlink("pts/ptmx", "/dev/ptmx")
	b.symlink("/proc/self/fd", "/dev/fd")
	for fd, name := range []string{"stdin", "stdout", "stderr"} {
		b.symlink("/proc/self/fd/"+strconv.Itoa(fd), "/dev/"+name)
	}
}

// fillSys creates the one file that programs read in /sys.
func (b *builder) fillSys() {
	const cpu = "/sys/devices/system/cpu"
	for _, dir := range []string{"/sys", "/sys/devices", "/sys/devices/system", cpu} {
		b.mkdir(dir, 0o555)
	}
	for _, name := range []string{"online", "possible", "present"} {
		b.write(cpu+"/"+name, b.config.CPUs+"\n")
	}
}

// bootID identifies one boot of the machine, and so also the machine. Instances get a random one.
const bootID = "/proc/sys/kernel/random/boot_id"

// makeOwn creates the folder own with its files.
func (b *builder) makeOwn() {
	b.mkdir(own, 0o555)
	b.mkdir(own+"/empty.d", 0o555)
	b.write(own+"/empty", "")
	b.write(own+"/boot_id", newUUID()+"\n")
	b.writeNames()
}

// sealOwn makes the folder own read only.
func (b *builder) sealOwn() {
	b.seal(b.root, own, mount.ReadOnly|mount.NoSUID|mount.NoDev|mount.NoExec)
}

// newUUID returns a random UUID.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// writeNames writes the files with the host name, and opens them for the agent while they are still writable.
func (b *builder) writeNames() {
	b.writeKept("/hostname", b.config.Hostname+"\n", NameFD)
	b.writeKept("/hosts", names.Hosts(b.config.Hostname), HostsFD)
}

func (b *builder) writeKept(name, text string, keep int) {
	if b.err != nil {
		return
	}
	path := own + name
	fd, err := unix.Openat(int(b.root), rel(path), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o444)
	b.do("make", path, err)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	b.do("write", path, err)
	b.do("keep", path, unix.Dup3(fd, keep, 0))
}

// seal binds a folder below t over itself, with additional mount attributes.
func (b *builder) seal(t mount.Tree, path string, attributes uint64) {
	if b.err != nil {
		return
	}
	copied, err := t.Sub(path, attributes)
	b.do("copy the mount of", path, err)
	if err == nil {
		b.do("seal", path, t.Attach(copied, path))
		copied.Close()
	}
}

func (b *builder) attach(nodes []mount.Tree, proc mount.Tree) {
	for i, t := range nodes {
		b.put(t, "/dev/"+Devices[i].Name)
	}
	b.mkdir("/proc", 0o555)
	b.put(proc, "/proc")
	pts, err := mount.New("devpts", mount.NoSUID|mount.NoExec, [][2]string{{"mode", "0620"}, {"ptmxmode", "0666"}, {"max", strconv.Itoa(terminals)}}...)
	b.do("make", "/dev/pts", err)
	b.put(pts, "/dev/pts")
	if b.config.Hostname != "" { // without a host name, the image's own files are visible
		b.cover("/hostname", "/etc/hostname")
		b.cover("/hosts", "/etc/hosts")
	}
}

// put attaches a tree and closes its descriptor.
func (b *builder) put(t mount.Tree, path string) {
	if b.err == nil {
		b.do("mount", path, b.root.Attach(t, path))
		t.Close()
	}
}

// hide covers files of /proc that must not be visible, and makes everything in /proc that belongs to no process read
// only.
func (b *builder) hide() {
	for _, name := range hidden {
		path := "/proc/" + name
		var st unix.Stat_t
		if unix.Fstatat(int(b.root), rel(path), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue // this kernel does not have the file
		}
		if st.Mode&0o007 == 0 {
			continue // only the host's root can use it, and no user inside is the host's root
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			b.cover("/empty.d", path)
		} else {
			b.cover("/empty", path)
		}
	}
	b.seal(b.root, "/proc/sys", mount.ReadOnly|mount.NoSUID|mount.NoDev|mount.NoExec)
	b.cover("/boot_id", bootID)
}

// cover mounts an empty file or folder of our own over the one at path.
func (b *builder) cover(name, path string) {
	if b.err != nil {
		return
	}
	t, err := b.root.Sub(own+name, 0)
	b.do("copy the mount of", own+name, err)
	b.put(t, path)
}

// mkdir creates a folder, and reports whether it did. Like the two functions below, it leaves an existing one
// unchanged: this program created it earlier, in a layer or over an image.
func (b *builder) mkdir(path string, mode uint32) bool {
	return b.err == nil && b.made(path, unix.Mkdirat(int(b.root), rel(path), mode))
}

func (b *builder) symlink(target, path string) {
	if b.err == nil {
		b.made(path, unix.Symlinkat(target, int(b.root), rel(path)))
	}
}

func (b *builder) write(path, text string) {
	if b.err != nil {
		return
	}
	fd, err := unix.Openat(int(b.root), rel(path), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o444)
	if !b.made(path, err) {
		return
	}
	defer unix.Close(fd)
	if text != "" {
		_, err = unix.Write(fd, []byte(text))
		b.do("write", path, err)
	}
}

func (b *builder) made(path string, err error) bool {
	if err == nil || (b.config.Layered || b.config.Image != nil) && err == unix.EEXIST {
		return err == nil
	}
	b.do("make", path, err)
	return false
}

func (b *builder) do(what, path string, err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("%s %s: %w", what, path, err)
	}
}

// rel returns an absolute path relative to the root.
func rel(path string) string { return path[1:] }

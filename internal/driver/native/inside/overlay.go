package inside

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/mount"
)

// The image's folders and files are those of the host. All instances and the host itself use them. A program that can
// only read a file can still watch who opens it, and can lock it against others. So an instance sees each folder
// through an overlay, whose inodes are private to the instance, and gets copies of single files. The overlay has
// another use: marks for deleted files in its upper folder hide paths, even if the host creates these paths later.

// benchPoint is the mount point for the parts of overlays while the overlays are built. It disappears with the
// old root.
const benchPoint = "/dev"

// bench is a folder for parts of overlays. It has a path while the old root exists.
type bench struct {
	tree mount.Tree
	proc mount.Tree
}

func newBench(proc mount.Tree) (*bench, error) {
	tree, err := mount.New("tmpfs", mount.NoSUID|mount.NoDev|mount.NoExec, [2]string{"mode", "0755"}, [2]string{"size", "1m"})
	if err != nil {
		return nil, err
	}
	return &bench{tree, proc}, tree.AttachTo(benchPoint)
}

// lay attaches a tree to the bench.
func (b *bench) lay(t mount.Tree, name string, folder bool) error {
	var err error
	if folder {
		err = unix.Mkdirat(int(b.tree), name, 0o755)
	} else {
		err = unix.Mknodat(int(b.tree), name, unix.S_IFREG|0o644, 0)
	}
	if err != nil {
		return fmt.Errorf("make %s on the bench: %w", name, err)
	}
	return b.tree.Attach(t, "/"+name)
}

// overlay returns an overlay of the folder t, without the hidden paths. It attaches t to the bench. If this kernel
// cannot make an overlay of this folder, the error is errPlain, and t is attached nevertheless.
func (b *bench) overlay(t mount.Tree, name string, hidden []string) (mount.Tree, error) {
	if err := b.lay(t, name, true); err != nil {
		return -1, err
	}
	top := name + ".top"
	if err := unix.Mkdirat(int(b.tree), top, 0o755); err != nil {
		return -1, err
	}
	if err := mount.Conceal(int(b.tree), name, top, hidden); err != nil {
		return -1, fmt.Errorf("%w: %w", errPlain, err)
	}
	shown, err := mount.New("overlay", mount.ReadOnly|mount.NoSUID|mount.NoDev,
		[2]string{"lowerdir", benchPoint + "/" + top + ":" + benchPoint + "/" + name}, [2]string{"xino", "on"})
	if err != nil {
		return -1, fmt.Errorf("%w: %w", errPlain, err)
	}
	return shown, nil
}

var errPlain = errors.New("no overlay")

// maxCopy is the largest size of a file of which an instance gets its own copy.
const maxCopy = 1 << 20

// read returns a small file that is mounted as t.
func (b *bench) read(t mount.Tree) ([]byte, error) {
	fd, err := unix.Openat(int(b.proc), "self/fd/"+strconv.Itoa(int(t)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "file")
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxCopy {
		return nil, errors.Join(err, errPlain)
	}
	return io.ReadAll(io.LimitReader(file, maxCopy))
}

// show mounts a bind at its target.
func (b *builder) show(n int, t mount.Tree) {
	if b.err != nil {
		return
	}
	defer t.Close()
	bind := b.config.Binds[n]
	name := strconv.Itoa(n)
	if !bind.Folder {
		b.showFile(name, t, bind.Target)
		return
	}
	shown, err := b.bench.overlay(t, name, bind.Hidden)
	if errors.Is(err, errPlain) {
		b.do("mount", bind.Target, b.root.Attach(t, bind.Target))
		b.maskPlain(bind)
		return
	}
	b.do("make an overlay for", bind.Target, err)
	b.put(shown, bind.Target)
}

// showFile shows a small file as a copy, and a large file itself.
func (b *builder) showFile(name string, t mount.Tree, target string) {
	text, err := b.bench.read(t)
	if errors.Is(err, errPlain) {
		b.do("mount", target, b.root.Attach(t, target))
		return
	}
	b.do("read", target, err)
	b.write(own+"/file-"+name, string(text))
	b.cover("/file-"+name, target)
}

// maskPlain covers the hidden paths of a folder without an overlay, if they exist.
func (b *builder) maskPlain(bind Bind) {
	for _, path := range bind.Hidden {
		target := filepath.Join(bind.Target, path)
		fd, err := b.root.Open(target, unix.O_PATH)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		b.do("open", target, err)
		var st unix.Stat_t
		b.do("stat", target, unix.Fstat(fd, &st))
		unix.Close(fd)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			b.cover("/empty.d", target)
		} else {
			b.cover("/empty", target)
		}
	}
}

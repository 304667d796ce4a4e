package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/native/inside"
	"hutch/internal/linux/mount"
)

// A layer is the file system of an instance whose processes have ended. An instance that starts with a layer has an
// overlay as its root: the layer as base, and its own file system in memory above. None of this has a name on the host,
// so there is nothing to count or sweep: the kernel keeps a layer for as long as a root uses it.
//
// The daemon creates the overlay, because overlays of ordinary users cannot rename the folders of a layer. The layer's
// files belong to the ids of the original instance. Each other instance sees them as its own through a mount that maps
// ids.

var _ driver.Layerer = (*Driver)(nil)

// layer implements driver.Layer.
type layer struct {
	size, inodes int64 // bytes and inodes that the layer occupies

	mu   sync.Mutex
	tree mount.Tree // not attached; -1 after Close
}

// Layers implements driver.Layerer. It returns false if the daemon is not root, because instances would then have to
// create their overlays themselves.
func (d *Driver) Layers() bool { return d.root && !d.layerless.Load() }

// Layer implements driver.Layerer.
func (d *Driver) Layer(ctx context.Context, inst driver.Instance) (driver.Layer, error) {
	i := inst.(*instance)
	l, err := i.layer()
	if gone := i.Destroy(ctx); gone != nil && err == nil {
		l.Close()
		err = gone
	}
	if err != nil {
		return nil, d.unlayered(err)
	}
	return l, nil
}

func (i *instance) layer() (*layer, error) {
	if !i.driver.Layers() {
		return nil, noLayers
	}
	if i.record.UID >= firstRange {
		return nil, noImageLayer
	}
	l := &layer{}
	return l, mount.Apart(func() (err error) {
		if err = i.process.With(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNS) }); err != nil {
			return fmt.Errorf("enter the mounts of an instance: %w", err)
		}
		if err = l.measure(); err != nil {
			return err
		}
		l.tree, err = mount.Root()
		return err
	})
}

// measure reads the size of the root, and refuses a layer that leaves an instance less than half of its disk. Such a
// layer is not worth sharing, because changes to its files need space again.
func (l *layer) measure() error {
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return err
	}
	l.size, l.inodes = int64(st.Blocks-st.Bfree)*st.Bsize, int64(st.Files-st.Ffree)
	if 2*l.size > int64(st.Blocks)*st.Bsize || 2*l.inodes > int64(st.Files) {
		return hutch.Errorf(hutch.Unsupported, "the files take more than half of limits.disk: a copy that changed them all would have no room")
	}
	return nil
}

// Close implements driver.Layer.
func (l *layer) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.tree.Close()
	l.tree = -1
	return err
}

// begin gives the instance a root on the layer. The instance waits for its configuration at that time.
func (i *instance) begin(l *layer, config *inside.Config) error {
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", i.record.PID))
	if err != nil {
		return err
	}
	defer users.Close()
	config.Layered = true
	config.Size, config.Inodes = config.Size-l.size, config.Inodes-l.inodes
	err = mount.Apart(func() error {
		root, err := i.overlay(l, config, int(users.Fd()))
		if err != nil {
			return err
		}
		defer root.Close()
		if err := i.process.With(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNS) }); err != nil {
			return fmt.Errorf("enter the mounts of an instance: %w", err)
		}
		return root.AttachTo(inside.AttachPoint)
	})
	return i.driver.unlayered(err)
}

var noLayers = hutch.Errorf(hutch.Unsupported, "native sandboxes cannot share files here: that takes Linux 6.3 with overlayfs, and root")

// unlayered records that this machine supports no layers, if err shows that.
func (d *Driver) unlayered(err error) error {
	for _, lacks := range []error{unix.EINVAL, unix.EPERM, unix.ENODEV, unix.ENOSYS, unix.EOPNOTSUPP} {
		if errors.Is(err, lacks) {
			d.layerless.Store(true)
			return noLayers.Because(err)
		}
	}
	return err
}

// overlay creates the root from folders of a file system in memory. That file system hides the instance's folder from
// this thread.
func (i *instance) overlay(l *layer, config *inside.Config, users int) (mount.Tree, error) {
	above, err := mount.New("tmpfs", mount.NoSUID|mount.NoDev, [][2]string{
		{"size", strconv.FormatInt(config.Size, 10)}, {"nr_inodes", strconv.FormatInt(config.Inodes, 10)}, {"mode", "0700"},
	}...)
	if err != nil {
		return -1, err
	}
	defer above.Close()
	if err := errors.Join(above.AttachTo(i.dir), unix.Chdir(i.dir)); err != nil {
		return -1, err
	}
	for _, dir := range []string{"layer", "mapped", "upper", "work"} {
		if err := unix.Mkdir(dir, 0o555); err != nil {
			return -1, err
		}
	}
	if err := unix.Chown("upper", i.record.UID, i.record.UID); err != nil {
		return -1, err
	}
	if err := l.show("layer", "mapped", users); err != nil {
		return -1, err
	}
	return mount.New("overlay", mount.NoSUID|mount.NoDev, [][2]string{
		{"lowerdir", "mapped"}, {"upperdir", "upper"}, {"workdir", "work"},
		{"redirect_dir", "on"}, // otherwise folders of the layer cannot be renamed
		{"index", "on"},        // otherwise a write to a hard link in the layer would separate the links
		{"xino", "on"},         // otherwise files of the layer seem to be on another device
	}...)
}

// show attaches the layer at path, and again at mapped, with the ids of an instance.
func (l *layer) show(path, mapped string, users int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.tree.AttachTo(path); err != nil {
		return err
	}
	// An attached tree ends with this thread's mounts, so the layer continues in a copy.
	next, err := l.tree.Copy()
	if err != nil {
		return err
	}
	shown, err := l.tree.Copy()
	l.tree.Close()
	l.tree = next
	if err != nil {
		return err
	}
	defer shown.Close()
	if err := shown.MapIDs(users); err != nil {
		return err
	}
	return shown.AttachTo(mapped)
}

package native

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// imageSpec returns the spec of an instance of an image with one program.
func imageSpec(t *testing.T, opt ...erofs.CreateOpt) driver.Spec {
	t.Helper()
	program, err := drivertest.Probe()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(drivertest.ImageFolder(t), "image.erofs")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := erofs.Create(out, opt...)
	f, err := w.Create("/probe")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(program)
	if err := errors.Join(err, f.Close(), w.Chmod("/probe", 0o755), w.Close()); err != nil {
		t.Fatal(err)
	}
	root, err := image.FromEROFS(path, image.EROFSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return driver.Spec{
		ID: "image", Root: root, Limits: drivertest.Limits,
		Boot: wire.Boot{Token: "token", Home: image.Home, Dir: image.Workspace, Hostname: "image", Env: root.Env},
	}
}

// runProbe runs the program of the image in an instance.
func runProbe(t *testing.T, inst driver.Instance, args ...string) {
	t.Helper()
	agent := wire.NewClient(inst.Dial, "token")
	defer agent.Close()
	exit, err := agent.Run(t.Context(), wire.Start{ID: "probe", Argv: append([]string{"/probe"}, args...)}, nil, nil)
	if err != nil || exit.Code != 0 {
		t.Errorf("probe %q: %+v, %v", args, exit, err)
	}
}

// If the kernel cannot mount the file, the instance gets the unpacked content. No kernel mounts a file with blocks
// larger than its pages.
func TestImageIsUnpacked(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	spec := imageSpec(t, erofs.WithBlockSize(64<<10))
	inst, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	defer inst.Destroy(t.Context())
	runProbe(t, inst, "stat", "/probe")
	runProbe(t, inst, "write", "/workspace/file", "x")
	tree := image.TreePath(spec.Root.EROFS)
	if ids, err := d.subordinate(); !d.root && err == nil {
		tree = image.OwnedTreePath(spec.Root.EROFS, ids)
	}
	if _, err := os.Stat(tree); err != nil {
		t.Error(err)
	}
}

// Instances of images cannot share written files. A request for that is refused, and the error does not reveal anything
// about other instances.
func TestImageHasNoLayer(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	if !d.Layers() {
		t.Skip("no instance shares files here")
	}
	spec := imageSpec(t)
	inst, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	if tree, err := mountFile(spec.Root.EROFS); err == nil {
		tree.Close()
		if _, err := os.Stat(image.TreePath(spec.Root.EROFS)); err == nil {
			t.Error("the image was unpacked, although the kernel can mount it")
		}
	}
	if _, err := d.Layer(t.Context(), inst); !errors.Is(err, hutch.Unsupported) {
		t.Errorf("a layer of an instance of an image: %v", err)
	}
	if !d.Layers() {
		t.Error("no other instance can share files any more")
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// The user of an image must have an id that the instance has.
func TestImageOfAHighUser(t *testing.T) {
	t.Parallel()
	spec := imageSpec(t)
	spec.Root.User = &image.Account{UID: 1 << 20, GID: 1000, Home: "/"}
	if inst, err := newDriver(t, t.TempDir()).Create(t.Context(), spec); err == nil {
		inst.Destroy(t.Context())
		t.Error("it was made")
	} else if !errors.Is(err, hutch.Unsupported) {
		t.Error(err)
	}
}

// An instance of an image can use only a part of its user's inotify instances.
func TestImageLimitsWatches(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	inst, err := d.Create(t.Context(), imageSpec(t))
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	defer inst.Destroy(t.Context())
	agent := wire.NewClient(inst.Dial, "token")
	defer agent.Close()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		t.Fatal(err)
	}
	most, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if !d.root {
		most /= 8
	} else {
		most /= 2
	}
	var out strings.Builder
	_, err = agent.Run(t.Context(), wire.Start{ID: "inotify", Argv: []string{"/probe", "inotify"}}, nil, func(o hutch.Output) error {
		out.Write(o.Data)
		return nil
	})
	if got, _ := strconv.Atoi(strings.TrimSpace(out.String())); err != nil || got < most-2 || got > most {
		t.Errorf("an instance can have %q, not %d, %v", out.String(), most, err)
	}
}

// TestSubordinateFindings: the finding says which ids are used, or what is missing.
func TestSubordinateFindings(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	findings := d.checkSubordinate()
	if d.root {
		if len(findings) > 0 {
			t.Errorf("root needs no such ids: %v", findings)
		}
		return
	}
	f := findings[0]
	if _, err := d.imageIDs(); err == nil {
		if f.Level != driver.Good || !strings.Contains(f.Detail, "share them") {
			t.Errorf("%+v", f)
		}
	} else if f.Level != driver.Warning || !strings.Contains(f.Detail, "subordinate ids") || f.Fix == "" {
		t.Errorf("%+v", f)
	}
}

// The instances of an image share one mount of its file, with its pages in memory; instances of other images do not.
// Nothing is mounted when all are gone.
func TestImageIsMountedOnce(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	if !d.root {
		t.Skip("only root mounts images")
	}
	same, other := imageSpec(t), imageSpec(t)
	if tree, err := mountFile(same.Root.EROFS); err != nil {
		skip(t, "this kernel mounts no image: "+err.Error())
	} else if copied, err := tree.Copy(); err != nil {
		skip(t, "this kernel copies no mount: "+err.Error())
	} else {
		copied.Close()
		tree.Close()
	}
	var all []driver.Instance
	for id, spec := range map[string]driver.Spec{"one": same, "two": same, "other": other} {
		spec.ID = id
		inst, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err, hutch.AsError(err).Cause)
		}
		defer inst.Destroy(t.Context())
		runProbe(t, inst, "write", "/workspace/file", "x")
		all = append(all, inst)
	}
	one, two, third := imageDevice(t, d, same), imageDevice(t, d, same), imageDevice(t, d, other)
	if one != two || one == third {
		t.Errorf("an image is on the devices %d and %d, another one on %d", one, two, third)
	}
	if n := len(d.images.all); n != 2 || d.images.all[same.Root.EROFS].uses != 2 {
		t.Errorf("3 instances of 2 images have %d mounts: %+v", n, d.images.all)
	}
	for _, inst := range all {
		if err := errors.Join(inst.Destroy(t.Context()), inst.Destroy(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if len(d.images.all) > 0 {
		t.Errorf("still mounted: %v", d.images.all)
	}
}

// imageDevice returns the device of the file system that the next instance of an image would get.
func imageDevice(t *testing.T, d *Driver, spec driver.Spec) uint64 {
	t.Helper()
	tree, release, err := d.images.take(spec.Root.EROFS)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	defer tree.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(tree), &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

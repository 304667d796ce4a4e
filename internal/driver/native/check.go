package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/linux/cgroup"
	"hutch/internal/linux/subid"
	"hutch/internal/linux/tun"
)

// Check creates an instance without an image, and removes it, because that is more reliable than any list of kernel
// settings.
func (d *Driver) Check(ctx context.Context) driver.Report {
	findings := []driver.Finding{d.checkNamespaces(ctx), d.checkLimits(), d.checkUsers()}
	findings = append(findings, d.checkSubordinate()...)
	findings = append(findings, d.checkNetwork(), d.checkFiles(ctx), d.checkLayers(ctx))
	r := driver.Report{OK: true, Findings: findings}
	for _, f := range findings {
		r.OK = r.OK && f.Level != driver.Bad
	}
	return r
}

func (d *Driver) checkNamespaces(ctx context.Context) driver.Finding {
	i, err := d.Create(ctx, trial(nil))
	if err == nil {
		err = i.Destroy(ctx)
	}
	if err == nil {
		return driver.Finding{Name: "namespaces", Level: driver.Good, Detail: "a sandbox can be set up"}
	}
	if cause := hutch.AsError(err).Cause; cause != nil {
		err = cause
	}
	return driver.Finding{Name: "namespaces", Level: driver.Bad, Detail: err.Error(), Fix: fixFor(err)}
}

// trial returns the spec of an instance without an image.
func trial(on driver.Layer) driver.Spec {
	return driver.Spec{
		ID:     fmt.Sprintf("check-%d-%x", os.Getpid(), rand.Uint32()),
		Limits: hutch.Limits{CPU: 1, Memory: 64, Disk: 1, PIDs: 16}, Layer: on,
	}
}

// forbidden are the settings that most often prevent the creation of an instance.
var forbidden = []struct{ path, bad, good string }{
	{"user/max_user_namespaces", "0", "user.max_user_namespaces=65536"},
	{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
	{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
}

func fixFor(err error) string {
	for _, setting := range forbidden {
		b, readErr := os.ReadFile("/proc/sys/" + setting.path)
		if readErr == nil && strings.TrimSpace(string(b)) == setting.bad {
			return "sudo sysctl -w " + setting.good
		}
	}
	switch text := err.Error(); {
	case errors.Is(err, os.ErrNotExist):
		return "build the programs: make build"
	case errors.Is(err, unix.ENOSYS), strings.Contains(text, unix.ENOSYS.Error()):
		return "use Linux 5.12 or newer"
	case strings.Contains(text, "mount a proc"):
		return "start the container with all of /proc: docker run --security-opt systempaths=unconfined"
	}
	return "start the container with namespaces allowed: docker run --privileged; or use the gvisor runtime"
}

func (d *Driver) checkLimits() driver.Finding {
	f := driver.Finding{Name: "control groups", Level: driver.Good}
	if d.tree == nil {
		f.Level = driver.Warning
		f.Detail = fmt.Sprintf("memory and CPU of native sandboxes are not limited, only processes and disk: %v", d.noTree)
		f.Fix = cgroup.Advice()
		return f
	}
	f.Detail = fmt.Sprintf("version %d limits CPU, memory and processes", d.tree.Version())
	return f
}

func (d *Driver) checkUsers() driver.Finding {
	f := driver.Finding{Name: "user ids", Level: driver.Good, Detail: "every native sandbox has two ids of its own; one with an image has 65537, and its commands can be root inside"}
	if !d.root {
		f.Level = driver.Warning
		f.Detail = "all native sandboxes of the image host run under your user id: a program that breaks out of one acts as you, and programs can slow their sandbox's agent"
		f.Fix = "start the server as root, which gives each sandbox ids of its own, or use gvisor, for code that you do not trust"
	}
	return f
}

// checkSubordinate checks the subordinate ids. For root, which needs none, it returns no finding.
func (d *Driver) checkSubordinate() []driver.Finding {
	if d.root {
		return nil
	}
	f := driver.Finding{Name: "subordinate ids", Level: driver.Good}
	ids, err := d.subordinate()
	if err == nil {
		n, _ := d.imageIDs()
		f.Detail = fmt.Sprintf("native sandboxes with an image have the user ids %d to %d and share them; their commands can be root inside", ids.Users.First, ids.Users.First+n)
		return []driver.Finding{f}
	}
	f.Level = driver.Warning
	f.Detail = fmt.Sprintf("no command of an image can be root, and native sandboxes with an image run under your user id, too: %v", err)
	if missing, ok := errors.AsType[*subid.Missing](err); ok {
		f.Detail = "no command of an image can be root, and native sandboxes with an image run under your user id, too: " + missing.Why
		f.Fix = missing.Fix
	}
	return []driver.Finding{f}
}

// checkNetwork checks whether network devices can be created. It creates no device, because the device would be one of
// the host.
func (d *Driver) checkNetwork() driver.Finding {
	f := driver.Finding{Name: "network devices", Level: driver.Good, Detail: "a sandbox can have a network of its own"}
	if err := tun.Check(); err != nil {
		f.Level = driver.Warning
		f.Detail = fmt.Sprintf("sandboxes have no network: %v", err)
		f.Fix = "sudo modprobe tun && sudo chmod 666 /dev/net/tun; in a container: docker run --device /dev/net/tun"
	}
	return f
}

// checkFiles creates an instance with this machine's programs, and checks how the instance sees them.
func (d *Driver) checkFiles(ctx context.Context) driver.Finding {
	f := driver.Finding{Name: "files of the host", Level: driver.Good, Detail: "a sandbox has its own view of them: it cannot watch or lock them"}
	if own, err := d.tryFiles(ctx); err != nil || !own {
		f.Level = driver.Warning
		f.Detail = "a sandbox can watch who opens the host's programs, and lock them"
		f.Fix = "use Linux 5.11 or newer with overlayfs (sudo modprobe overlay), and no more than one overlay below /usr"
	}
	return f
}

// tryFiles reports whether an instance shows /usr by an overlay.
func (d *Driver) tryFiles(ctx context.Context) (own bool, err error) {
	dir, err := os.MkdirTemp("", "hutch-check-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir+"/usr", 0o755); err != nil {
		return false, err
	}
	spec := trial(nil)
	spec.Root = image.Root{Dir: dir, Binds: []image.Bind{{Source: "/usr", Target: "/usr"}}}
	i, err := d.Create(ctx, spec)
	if err != nil {
		return false, err
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", i.(*instance).record.PID))
	return strings.Contains(string(mounts), " /usr overlay "), errors.Join(err, i.Destroy(ctx))
}

// checkLayers creates an instance on a layer that it has made from another instance.
func (d *Driver) checkLayers(ctx context.Context) driver.Finding {
	f := driver.Finding{Name: "shared files", Level: driver.Good, Detail: "copies of a sandbox share its files"}
	if err := d.tryLayers(ctx); err != nil {
		f.Level = driver.Warning
		f.Detail = fmt.Sprintf("each copy of a sandbox has files of its own: %v", cmp.Or(hutch.AsError(err).Cause, err))
		f.Fix = "start the server as root, on Linux 6.3 or newer with overlayfs"
	}
	return f
}

func (d *Driver) tryLayers(ctx context.Context) error {
	if !d.Layers() {
		return noLayers
	}
	below, err := d.Create(ctx, trial(nil))
	if err != nil {
		return err
	}
	l, err := d.Layer(ctx, below)
	if err != nil {
		return err
	}
	defer l.Close()
	i, err := d.Create(ctx, trial(l))
	if err != nil {
		return err
	}
	return i.Destroy(ctx)
}

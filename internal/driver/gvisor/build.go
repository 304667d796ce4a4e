package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/builds"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/wire"
)

var _ driver.Keeper = (*Driver)(nil)

// keepBuilds makes the driver run kept copies of its programs. If that is not possible, the driver runs the
// installed programs.
func (d *Driver) keepBuilds() error {
	if d.opt.Builds == "" {
		return nil
	}
	kept, err := builds.Open(d.opt.Builds, fmt.Sprintf("p%dc%d", wire.Version, contract.Version))
	if err != nil {
		return err
	}
	build, failed := kept.Add(d.opt.Runsc, d.opt.Agent)
	if failed == nil {
		d.kept, d.build = kept, build
		return nil
	}
	if d.build.Name, err = kept.NameOf(d.opt.Runsc, d.opt.Agent); errors.Is(err, fs.ErrNotExist) { // Check reports the missing program
		return nil
	}
	d.opt.Log.Warn("the programs of gVisor sandboxes could not be kept: after an upgrade of Hutch, what sleeps wakes with its files only", "folder", d.opt.Builds, "err", failed)
	return err
}

// Contract implements driver.Keeper.
func (d *Driver) Contract() string {
	if d.kept == nil || !d.opt.OldBuilds {
		return ""
	}
	return d.kept.Contract()
}

// Build implements driver.Restorer.
func (d *Driver) Build() string { return d.build.Name }

// BuildOf implements driver.Restorer.
func (d *Driver) BuildOf(dir string) (string, error) { return builds.Marked(dir) }

// buildOf returns the programs that can restore a save. A save without a name is from a driver that keeps no programs,
// so the installed programs are perhaps the right ones.
func (d *Driver) buildOf(dir string) (builds.Build, error) {
	name, err := builds.Marked(dir)
	if err != nil {
		return builds.Build{}, err
	}
	if name == "" || name == d.build.Name {
		return d.build, nil
	}
	if err := d.Restores(name); err != nil {
		return builds.Build{}, err
	}
	return d.kept.Get(name)
}

// Restores implements driver.Restorer.
func (d *Driver) Restores(build string) error {
	switch {
	case build == d.build.Name:
		return nil
	case d.kept == nil:
		return errNotKept(build)
	case !d.opt.OldBuilds:
		return hutch.Errorf(hutch.Conflict, "this server does not restore what other versions of Hutch saved (build %.20s): it runs with --old-builds=false", build)
	}
	_, err := d.kept.Get(build)
	return err
}

func errNotKept(build string) error {
	return hutch.Errorf(hutch.Conflict, "this server keeps no programs of other versions of Hutch (build %.20s)", build)
}

// Retain implements driver.Keeper.
func (d *Driver) Retain(needed func(build string) bool) error {
	if d.kept == nil {
		return nil
	}
	entries, err := os.ReadDir(d.opt.Dir)
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for _, e := range entries {
		name, err := builds.Marked(filepath.Join(d.opt.Dir, e.Name()))
		if err != nil {
			return err
		}
		here[name] = true
	}
	return d.kept.Retain(func(name string) bool { return here[name] || needed(name) })
}

// SendBuild implements driver.Keeper.
func (d *Driver) SendBuild(build string, w io.Writer) error {
	if d.kept == nil {
		return errNotKept(build)
	}
	return d.kept.Send(build, w)
}

// ReceiveBuild implements driver.Keeper.
func (d *Driver) ReceiveBuild(build string, r io.Reader) error {
	if d.kept == nil {
		return errNotKept(build)
	}
	return d.kept.Receive(build, r)
}

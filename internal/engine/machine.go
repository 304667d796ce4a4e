package engine

import (
	"context"
	"io"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/instance"
	"hutch/internal/store"
	"hutch/internal/travel"
)

// machine knows which saved state this machine can wake: the memory that its runtimes restore, and the requirements of
// saved state.
type machine struct {
	drivers []driver.Driver
	maker   *instance.Maker
	resolve func(ctx context.Context, name string, pull hutch.PullPolicy) (string, error) // Options.Resolve; can be nil
}

// Machine describes this machine, for a comparison with the needs of images.
func (mc machine) Machine(ctx context.Context) travel.Machine {
	m := travel.Machine{Builds: map[string]string{}, Contracts: map[string]string{}, Host: travel.Host(), CPU: travel.CPU(), Snapshots: true, Claims: true}
	for _, d := range mc.drivers {
		m.Builds[d.Name()] = ""
		if r, ok := driver.As[driver.Restorer](d); ok {
			m.Builds[d.Name()] = r.Build()
		}
		if k, ok := driver.As[driver.Keeper](d); ok && k.Contract() != "" {
			m.Contracts[d.Name()] = k.Contract()
		}
	}
	return m
}

// HasBuild reports whether memory that a build of a runtime saved can be restored here now.
func (mc machine) HasBuild(runtime, build string) bool {
	d, err := mc.maker.Driver(runtime)
	if err != nil {
		return false
	}
	r, ok := driver.As[driver.Restorer](d)
	return ok && r.Restores(build) == nil
}

// SendBuild writes the programs of a build for ReceiveBuild on another machine.
func (mc machine) SendBuild(runtime, build string, w io.Writer) error {
	k, err := mc.keeper(runtime)
	if err != nil {
		return err
	}
	return k.SendBuild(build, w)
}

// ReceiveBuild keeps the programs of a build that another machine sent. It refuses programs of any other build.
func (mc machine) ReceiveBuild(runtime, build string, r io.Reader) error {
	k, err := mc.keeper(runtime)
	if err != nil {
		return err
	}
	return k.ReceiveBuild(build, r)
}

func (mc machine) keeper(runtime string) (driver.Keeper, error) {
	d, err := mc.maker.Driver(runtime)
	if err != nil {
		return nil, err
	}
	k, ok := driver.As[driver.Keeper](d)
	if !ok {
		return nil, hutch.Errorf(hutch.Unsupported, "the runtime %s keeps no programs of other versions of Hutch", runtime)
	}
	return k, nil
}

// needs returns the requirements that a saved sandbox has of a machine, without its build. folder reports that it is
// saved as a folder, and memory that its memory is in that folder. The error is the reason why it cannot leave this
// machine.
func (mc machine) needs(rec store.Record, folder, memory bool) (n travel.Needs, err error) {
	v := rec.Sandbox
	if len(v.Volumes) > 0 {
		return n, hutch.Errorf(hutch.Unsupported, "it has volumes, which are on this node")
	}
	d, err := mc.maker.Driver(v.Runtime)
	if err != nil {
		return n, err
	}
	n.Runtime = v.Runtime
	if !folder {
		return n, nil
	}
	if _, ok := driver.As[driver.Relocator](d); !ok {
		return n, hutch.Errorf(hutch.Unsupported, "what the runtime %s saves is good on one machine only", v.Runtime)
	}
	if memory {
		n.CPU = travel.CPU()
		if v.Image == image.HostName {
			n.Host = travel.Host()
		}
	}
	return n, nil
}

// buildOf returns the build that restores the memory of a saved sandbox.
func (mc machine) buildOf(runtime, dir string) (string, error) {
	d, err := mc.maker.Driver(runtime)
	if err != nil {
		return "", err
	}
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		return "", nil
	}
	return r.BuildOf(dir)
}

// present pulls the image of a sandbox if it is missing here.
func (mc machine) present(ctx context.Context, v hutch.Sandbox) error {
	_, err := mc.maker.Root(ctx, instance.KindOf(v))
	if err == nil || mc.resolve == nil {
		return err
	}
	if _, pulled := mc.resolve(ctx, v.Image, hutch.PullMissing); pulled != nil {
		return hutch.Errorf(hutch.Unavailable, "the image %s of the sandbox is not on this node, and could not be pulled: pull or build it here", v.Image).Because(pulled)
	}
	_, err = mc.maker.Root(ctx, instance.KindOf(v))
	return err
}

// relocate adapts the saved state of another machine so that this one can wake it.
func (mc machine) relocate(ctx context.Context, rec store.Record, dir string) error {
	v := rec.Sandbox
	d, err := mc.maker.Driver(v.Runtime)
	if err != nil {
		return err
	}
	r, ok := driver.As[driver.Relocator](d)
	if !ok {
		return hutch.Errorf(hutch.Unsupported, "the runtime %s restores no memory of another machine", d.Name())
	}
	root, err := mc.maker.Root(ctx, instance.KindOf(v))
	if err != nil {
		return err
	}
	return r.Relocate(driver.Spec{ID: rec.Key, Image: v.Image, Root: root, Limits: v.Limits}, dir)
}

package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/instance"
	"hutch/internal/snapshots"
	"hutch/internal/store"
	"hutch/internal/travel"
)

// A sleeping sandbox is files and a record, so it can move to another machine: Asleep reads it, Depart removes it here,
// and Arrive adds it here. Package fleet chooses the machine, and makes sure that the sandbox is on one machine at a
// time: these methods hold the lifecycle lock of the sandbox while they call back.

// Machine describes this machine, to compare with the needs of images.
func (e *Engine) Machine(ctx context.Context) travel.Machine {
	m := travel.Machine{Builds: map[string]string{}, Contracts: map[string]string{}, Host: travel.Host(), CPU: travel.CPU()}
	for _, d := range e.opt.Drivers {
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
func (e *Engine) HasBuild(runtime, build string) bool {
	d, err := e.instances.Driver(runtime)
	if err != nil {
		return false
	}
	r, ok := driver.As[driver.Restorer](d)
	return ok && r.Restores(build) == nil
}

// SendBuild writes the programs of a build for ReceiveBuild on another machine.
func (e *Engine) SendBuild(runtime, build string, w io.Writer) error {
	k, err := e.keeper(runtime)
	if err != nil {
		return err
	}
	return k.SendBuild(build, w)
}

// ReceiveBuild keeps the programs of a build that another machine sent. It refuses others.
func (e *Engine) ReceiveBuild(runtime, build string, r io.Reader) error {
	k, err := e.keeper(runtime)
	if err != nil {
		return err
	}
	return k.ReceiveBuild(build, r)
}

func (e *Engine) keeper(runtime string) (driver.Keeper, error) {
	d, err := e.instances.Driver(runtime)
	if err != nil {
		return nil, err
	}
	k, ok := driver.As[driver.Keeper](d)
	if !ok {
		return nil, hutch.Errorf(hutch.Unsupported, "the runtime %s keeps no programs of other versions of Hutch", runtime)
	}
	return k, nil
}

// retainBuilds removes kept programs that no saved memory on this machine needs.
func (e *lifecycle) retainBuilds() error {
	for _, d := range e.opt.Drivers {
		k, ok := driver.As[driver.Keeper](d)
		if !ok {
			continue
		}
		needed := map[string]bool{}
		for _, s := range e.sandboxes {
			if s.Sandbox().Runtime != d.Name() || !e.saved.HasMemory(s.Key()) {
				continue
			}
			build, err := k.BuildOf(e.saved.Memory(s.Key()))
			if err != nil {
				return err
			}
			needed[build] = true
		}
		for _, snap := range e.snaps.List(snapshots.Viewer{Server: true}) {
			needed[snap.Build] = true
		}
		if err := k.Retain(func(build string) bool { return needed[build] }); err != nil {
			return err
		}
	}
	return nil
}

// Asleep calls do with a sleeping sandbox, which stays asleep meanwhile. The context of do ends when another call needs the
// sandbox. Asleep returns Conflict for a sandbox that does not sleep.
func (e *Engine) Asleep(ctx context.Context, owner, id string, do func(ctx context.Context, img travel.Image, send func(io.Writer) error) error) error {
	return e.holdAsleep(ctx, owner, id, func(s *sandbox) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.GiveWay(cancel)
		defer s.GiveWay(nil)
		rec := s.Record()
		key, memory := s.Key(), e.inFolder(rec)
		needs, err := e.needs(rec, memory, rec.Sandbox.Status == hutch.Hibernated)
		if err == nil && memory {
			needs.Build, err = e.buildOf(rec.Sandbox.Runtime, e.saved.Memory(key))
		}
		if err != nil {
			return err
		}
		return do(ctx, travel.Image{RecordKey: key, Needs: needs}, func(w io.Writer) error { return e.saved.Send(key, memory, w) })
	})
}

// Depart removes a sleeping sandbox from this machine, after leave has assigned it to another one.
func (e *Engine) Depart(ctx context.Context, owner, id string, leave func(ctx context.Context) error) error {
	return e.holdAsleep(ctx, owner, id, func(s *sandbox) error {
		return e.leave(s, func() error { return leave(context.WithoutCancel(ctx)) })
	})
}

// leave removes a sandbox without an instance from this machine, after its record has moved to another one.
func (e *lifecycle) leave(s *sandbox, leave func() error) error {
	if err := s.Destroy("it is on another node", leave); err != nil {
		return err
	}
	e.exposed.Remove(s.Record().Ports)
	s.Disconnect()
	e.mu.Lock()
	delete(e.sandboxes, s.Name())
	e.mu.Unlock()
	e.log.Info("left for another node", "sandbox", s.ID())
	return e.saved.Remove(s.Key())
}

func (e *lifecycle) holdAsleep(ctx context.Context, owner, id string, do func(*sandbox) error) error {
	return e.hold(box.Name{Owner: owner, ID: id}.Context(ctx), id, func(s *sandbox) error {
		if !s.Status().Sleeps() || s.Gone() {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q is awake", id).Naming(hutch.AboutSandbox, id)
		}
		return do(s)
	})
}

// inFolder reports whether a sleeping sandbox is saved as a folder, and not as an archive of files.
func (e *lifecycle) inFolder(rec store.Record) bool {
	return rec.Sandbox.Status == hutch.Hibernated || e.saved.HasMemory(rec.Key)
}

// needs returns the requirements of a saved sandbox on a machine, without its build. folder says that it is saved as a
// folder, and memory that its memory is in that folder. The error says why it cannot leave this machine.
func (e *lifecycle) needs(rec store.Record, folder, memory bool) (n travel.Needs, err error) {
	v := rec.Sandbox
	if len(v.Volumes) > 0 {
		return n, hutch.Errorf(hutch.Unsupported, "it has volumes, which are on this node")
	}
	d, err := e.instances.Driver(v.Runtime)
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
func (e *lifecycle) buildOf(runtime, dir string) (string, error) {
	d, err := e.instances.Driver(runtime)
	if err != nil {
		return "", err
	}
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		return "", nil
	}
	return r.BuildOf(dir)
}

// Arrive adds a sandbox whose record is in the store to this machine, asleep. read passes on what Asleep sent, or Checkpoint at the
// time of checkpoint; then commit assigns the sandbox to this machine. On an error nothing is left here.
func (e *Engine) Arrive(ctx context.Context, owner, id string, checkpoint time.Time, read func(of string, to func(io.Reader) error) error, commit func(context.Context) error) (err error) {
	if e.opt.Store == nil {
		return hutch.Errorf(hutch.Unsupported, "this server keeps no records, so no sandbox can come here")
	}
	rec, err := e.opt.Store.Find(ctx, owner, id)
	if err != nil {
		return err
	}
	if !checkpoint.IsZero() {
		rec = asCheckpoint(rec, checkpoint)
	}
	name := box.Name{Owner: owner, ID: id}
	e.mu.Lock()
	there := e.sandboxes[name] != nil
	e.mu.Unlock()
	if there {
		return hutch.Errorf(hutch.Conflict, "the sandbox %q is here already", id).Naming(hutch.AboutSandbox, id)
	}
	if err := e.present(ctx, rec.Sandbox); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.saved.Remove(rec.Key))
		}
	}()
	err = read(rec.Key, func(r io.Reader) error {
		return e.saved.Receive(rec.Key, r, func(dir string) error { return e.relocate(ctx, rec, dir) })
	})
	if err != nil {
		return err
	}
	if err := commit(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s := e.newSandbox(rec)
	s.RecoverAsleep()
	e.mu.Lock()
	e.sandboxes[name] = s
	e.mu.Unlock()
	if !checkpoint.IsZero() {
		if err := s.Save(ctx); err != nil { // the next start finds the folder
			e.log.Error("write that a sandbox came from another node", "sandbox", id, "err", err)
		}
	}
	s.Arm()
	for _, x := range rec.Ports {
		if err := e.exposed.Publish(owner, x); err != nil {
			e.log.Error("an exposed port of a sandbox that came from another node", "sandbox", id, "err", err)
		}
	}
	e.log.Info("came from another node", "sandbox", id)
	return nil
}

// PortsInStore returns the exposed ports of a sandbox that can be on no machine.
func (e *Engine) PortsInStore(ctx context.Context, owner, id string) (list []hutch.Port, err error) {
	if e.opt.Store == nil {
		return nil, nil
	}
	rec, err := e.opt.Store.Find(ctx, owner, id)
	for _, x := range rec.Ports {
		list = append(list, x.Port)
	}
	return list, err
}

// present pulls the image of a sandbox if it is missing here.
func (e *lifecycle) present(ctx context.Context, v hutch.Sandbox) error {
	_, err := e.instances.Root(ctx, instance.KindOf(v))
	if err == nil || e.opt.Resolve == nil {
		return err
	}
	if _, pulled := e.opt.Resolve(ctx, v.Image, hutch.PullMissing); pulled != nil {
		return hutch.Errorf(hutch.Unavailable, "the image %s of the sandbox is not on this node, and could not be pulled: pull or build it here", v.Image).Because(pulled)
	}
	_, err = e.instances.Root(ctx, instance.KindOf(v))
	return err
}

// relocate adapts the saved state of another machine so that this one can wake it.
func (e *lifecycle) relocate(ctx context.Context, rec store.Record, dir string) error {
	v := rec.Sandbox
	d, err := e.instances.Driver(v.Runtime)
	if err != nil {
		return err
	}
	r, ok := driver.As[driver.Relocator](d)
	if !ok {
		return hutch.Errorf(hutch.Unsupported, "the runtime %s restores no memory of another machine", d.Name())
	}
	root, err := e.instances.Root(ctx, instance.KindOf(v))
	if err != nil {
		return err
	}
	return r.Relocate(driver.Spec{ID: rec.Key, Image: v.Image, Root: root, Limits: v.Limits}, dir)
}

// relocateAll adapts what a backup of another folder or another machine has of sandboxes and snapshots. What cannot be adapted keeps its files, and
// the next use says so.
func (e *lifecycle) relocateAll(ctx context.Context) {
	failed := func(kind, id string, err error) {
		e.log.Warn("the memory in the backup cannot be restored here, only the files", kind, id, "err", err, "cause", hutch.AsError(err).Cause)
	}
	for _, s := range e.sandboxes {
		if !e.saved.HasMemory(s.Key()) {
			continue
		}
		if err := e.relocate(ctx, s.Record(), e.saved.Memory(s.Key())); err != nil {
			failed("sandbox", s.ID(), err)
		}
	}
	for _, snap := range e.snaps.List(snapshots.Viewer{Server: true}) {
		if !snap.Snapshot.Memory {
			continue
		}
		if err := snap.Change(func() error { return e.relocate(ctx, snap.Record, snap.Memory()) }); err != nil {
			failed("snapshot", snap.Snapshot.ID, err)
		}
	}
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/store"
	"hutch/internal/travel"
)

// A sleeping sandbox consists of files and a record, so it can move to another machine: Asleep reads it, Depart removes
// it here, and Arrive adds it here. Package fleet chooses the machine, and makes sure that the sandbox is on one
// machine at a time. These methods hold the lifecycle lock of the sandbox while they call the functions of their
// caller.

// mover carries sleeping sandboxes, checkpoints of running ones, and snapshots from and to other machines.
type mover struct {
	life     *lifecycle
	captures captures
}

// Asleep calls do with a sleeping sandbox, which stays asleep meanwhile. The context of do ends when another call needs the
// sandbox. Asleep returns Conflict for a sandbox that does not sleep.
func (m mover) Asleep(ctx context.Context, owner, id string, do func(ctx context.Context, img travel.Image, send func(io.Writer) error) error) error {
	return m.holdAsleep(ctx, owner, id, func(s *sandbox) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.GiveWay(cancel)
		defer s.GiveWay(nil)
		rec := s.Record()
		key, memory := s.Key(), m.inFolder(rec)
		needs, err := m.life.here.needs(rec, memory, rec.Sandbox.Status == hutch.Hibernated)
		if err == nil && memory {
			needs.Build, err = m.life.here.buildOf(rec.Sandbox.Runtime, m.life.saved.Memory(key))
		}
		if err != nil {
			return err
		}
		return do(ctx, travel.Image{RecordKey: key, Needs: needs}, func(w io.Writer) error { return m.life.saved.Send(key, memory, w) })
	})
}

// Depart removes a sleeping sandbox from this machine, after leave has assigned it to another one.
func (m mover) Depart(ctx context.Context, owner, id string, leave func(ctx context.Context) error) error {
	return m.holdAsleep(ctx, owner, id, func(s *sandbox) error {
		return m.leave(s, func() error { return leave(context.WithoutCancel(ctx)) })
	})
}

// leave removes a sandbox without an instance from this machine, after the function leave has moved its record to
// another machine.
func (m mover) leave(s *sandbox, leave func() error) error {
	if err := s.Destroy("it is on another node", leave); err != nil {
		return err
	}
	m.life.exposed.Remove(s.Record().Ports)
	s.Disconnect()
	m.life.table.remove(s)
	m.life.log.Info("left for another node", "sandbox", s.ID())
	return m.life.saved.Remove(s.Key())
}

func (m mover) holdAsleep(ctx context.Context, owner, id string, do func(*sandbox) error) error {
	return m.life.hold(box.Name{Owner: owner, ID: id}.Context(ctx), id, func(s *sandbox) error {
		if !s.Status().Sleeps() || s.Gone() {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q is awake", id).Naming(hutch.AboutSandbox, id)
		}
		return do(s)
	})
}

// inFolder reports whether a sleeping sandbox is saved as a folder. If not, it is saved as an archive of files.
func (m mover) inFolder(rec store.Record) bool {
	return rec.Sandbox.Status == hutch.Hibernated || m.life.saved.HasMemory(rec.Key)
}

// Arrive adds a sandbox whose record is in the store to this machine, asleep. read passes on the data that Asleep sent
// or, if a has a checkpoint, the data that Checkpoint sent at that time. Then commit assigns the sandbox to this
// machine. If it is not known whether commit did so, its error is travel.ErrUndecided: the files stay here, also over a
// restart, until Settle has found out. After any other error nothing is left here.
func (m mover) Arrive(ctx context.Context, a travel.Arrival, read func(of string, to func(io.Reader) error) error, commit func(context.Context) error) error {
	rec, err := m.recordOf(ctx, a)
	if err != nil {
		return err
	}
	if err := m.life.here.present(ctx, rec.Sandbox); err != nil {
		return err
	}
	a.RecordKey = rec.Key
	err = read(rec.Key, func(r io.Reader) error {
		return m.life.saved.Receive(rec.Key, r, func(dir string) error { return m.life.here.relocate(ctx, rec, dir) })
	})
	if err == nil {
		err = m.life.saved.NoteArrival(a)
	}
	if err != nil {
		return errors.Join(err, m.discardArrival(rec.Key))
	}
	return m.settle(ctx, a, rec, commit)
}

// Arrivals lists the sandboxes whose files are here, while it is not known whether they have moved here. If some notes
// cannot be read, it lists the others, and its error is travel.ErrBadNote.
func (m mover) Arrivals() ([]travel.Arrival, error) {
	all, err := m.life.saved.Arrivals()
	return slices.Collect(maps.Values(all)), err
}

// CameAwake lists the sandboxes that were awake on their earlier node, and whose arrival was completed when this
// process started.
func (m mover) CameAwake() []travel.Arrival { return m.life.cameAwake }

// Settle calls commit again for a sandbox of Arrivals, with the same contract as in Arrive. Then either the sandbox is
// on this machine, or its files are removed. They are also removed if the sandbox was destroyed meanwhile. A sandbox
// whose files are gone is not on this machine.
func (m mover) Settle(ctx context.Context, a travel.Arrival, commit func(context.Context) error) error {
	rec, err := m.recordOf(ctx, a)
	gone := hutch.KindOf(err) == hutch.NotFound
	if err == nil { // a newer sandbox can have the same name
		gone = rec.Key != a.RecordKey || !m.life.saved.Has(rec.Key, rec.Sandbox.Status)
	}
	switch {
	case gone:
		return errors.Join(hutch.Errorf(hutch.NotFound, "the sandbox %q is destroyed, or its files are not here any more", a.Sandbox).Naming(hutch.AboutSandbox, a.Sandbox), m.discardArrival(a.RecordKey))
	case err != nil:
		return err
	}
	return m.settle(ctx, a, rec, commit)
}

// recordOf returns the record of a sandbox that arrives here.
func (m mover) recordOf(ctx context.Context, a travel.Arrival) (rec store.Record, err error) {
	if m.life.opt.Store == nil {
		return rec, hutch.Errorf(hutch.Unsupported, "this server keeps no records, so no sandbox can come here")
	}
	if rec, err = m.life.opt.Store.Find(ctx, a.Owner, a.Sandbox); err != nil {
		return rec, err
	}
	if m.life.table.named(box.Name{Owner: a.Owner, ID: a.Sandbox}) != nil {
		return rec, hutch.Errorf(hutch.Conflict, "the sandbox %q is here already", a.Sandbox).Naming(hutch.AboutSandbox, a.Sandbox)
	}
	if !a.Checkpoint.IsZero() {
		rec = asCheckpoint(rec, a.Checkpoint)
	}
	return rec, nil
}

// settle calls commit for a sandbox with a note of its arrival, and adds the sandbox or removes its files. The note is
// removed before calls can reach the sandbox, because a start that finds the note resets the sandbox to its state at
// the arrival.
func (m mover) settle(ctx context.Context, a travel.Arrival, rec store.Record, commit func(context.Context) error) error {
	err := commit(context.WithoutCancel(ctx))
	if errors.Is(err, travel.ErrUndecided) {
		return err
	}
	if err != nil {
		return errors.Join(err, m.discardArrival(rec.Key))
	}
	s := m.life.newSandbox(rec)
	s.RecoverAsleep()
	if !a.Checkpoint.IsZero() {
		if err := s.Save(ctx); err != nil { // the next start finds the folder
			m.life.log.Error("write that a sandbox came from another node", "sandbox", a.Sandbox, "err", err)
		}
	}
	if err := m.life.saved.ForgetArrival(rec.Key); err != nil {
		return fmt.Errorf("%w: %w", travel.ErrUndecided, err)
	}
	m.life.table.add(s)
	s.Arm()
	for _, x := range rec.Ports {
		if err := m.life.exposed.Publish(a.Owner, x); err != nil {
			m.life.log.Error("an exposed port of a sandbox that came from another node", "sandbox", a.Sandbox, "err", err)
		}
	}
	m.life.log.Info("came from another node", "sandbox", a.Sandbox)
	return nil
}

// discardArrival removes the note of a sandbox that has not arrived, and then its files. The order matters: a note
// without files would make the next start add a lost sandbox, while files without a note are removed at the next start.
func (m mover) discardArrival(key string) error {
	if err := m.life.saved.ForgetArrival(key); err != nil {
		return err
	}
	return m.life.saved.Remove(key)
}

// PortsInStore returns the exposed ports of a sandbox, also of one that is on no machine.
func (m mover) PortsInStore(ctx context.Context, owner, id string) (list []hutch.Port, err error) {
	if m.life.opt.Store == nil {
		return nil, nil
	}
	rec, err := m.life.opt.Store.Find(ctx, owner, id)
	for _, x := range rec.Ports {
		list = append(list, x.Port)
	}
	return list, err
}

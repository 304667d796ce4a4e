package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compare"
	"hutch/internal/ctxlock"
	"hutch/internal/fairqueue"
	"hutch/internal/pipe"
	"hutch/internal/saved"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

const (
	// compareTime bounds a comparison, which reads all files of both sides.
	compareTime = 10 * time.Minute
	// comparisons is how many comparisons run at once, because each uses a processor. An owner has one at a time. A
	// comparison that takes longer than slowComparison is slow: it is large, or its sandbox does not answer. Each slow
	// comparison lets a comparison of another owner begin, up to mostComparisons in total. At that number, a slow
	// comparison is ended when another owner needs its slot.
	comparisons     = 2
	mostComparisons = 8
	slowComparison  = 10 * time.Second
)

// comparing bounds how many comparisons run.
type comparing struct {
	owners ctxlock.Locks
	all    *fairqueue.Queue
}

func newComparing() *comparing {
	return &comparing{all: fairqueue.New(comparisons, mostComparisons, slowComparison)}
}

// begin waits until a comparison of an owner can run. The comparison must use the returned context, and the caller
// calls end after it.
func (c *comparing) begin(ctx context.Context, owner string) (_ context.Context, end func(), err error) {
	if err := c.owners.Take(ctx, owner); err != nil {
		return nil, nil, err
	}
	ctx, release, err := c.all.Begin(ctx, owner)
	if err != nil {
		c.owners.Put(owner)
		return nil, nil, err
	}
	return ctx, func() {
		release()
		c.owners.Put(owner)
	}, nil
}

// side is one side of a comparison. The caller closes it.
type side struct {
	compare.Archive
	close func()
}

// comparer compares and reads the files of snapshots.
type comparer struct {
	life  *lifecycle
	queue *comparing
}

// DiffSnapshot implements hutch.Snapshots.
func (c comparer) DiffSnapshot(ctx context.Context, id string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	if err := req.Check(); err != nil {
		return hutch.SnapshotDiff{}, err
	}
	snap, err := c.life.snaps.Find(viewer(ctx), id)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	ctx, end, err := c.queue.begin(ctx, viewer(ctx).Owner)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	defer end()
	diff, err := c.diffSnapshot(ctx, snap, req)
	if err != nil && errors.Is(context.Cause(ctx), fairqueue.ErrShare) {
		err = hutch.Errorf(hutch.Unavailable, "comparisons of other owners wait, and this one took longer than %v: try again in a moment, or name a folder with path", slowComparison)
	}
	return diff, err
}

func (c comparer) diffSnapshot(ctx context.Context, snap *snapshots.Snapshot, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, compareTime, hutch.Errorf(hutch.Timeout, "the comparison took longer than %v: name a folder with path", compareTime))
	defer cancel()
	before, err := snapshotSide(snap)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	defer before.close()
	after, names, err := c.otherSide(ctx, snap, req)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	defer after.close()
	diff, err := compare.Archives(ctx, before.Archive, after.Archive, compare.Options{Path: req.Path, Text: req.Text, Take: caller.From(ctx).Budget.Take})
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	diff.Snapshot, diff.To, diff.SandboxID = snap.Snapshot.ID, names.To, names.SandboxID
	return diff, nil
}

// otherSide finds what a snapshot is compared with: another snapshot or a sandbox. names has the id of that other side.
func (c comparer) otherSide(ctx context.Context, snap *snapshots.Snapshot, req hutch.SnapshotDiffRequest) (s side, names hutch.SnapshotDiff, err error) {
	if req.To != "" {
		with, err := c.life.snaps.Find(viewer(ctx), req.To)
		if err != nil {
			return side{}, names, err
		}
		names.To = with.Snapshot.ID
		s, err = snapshotSide(with)
		return s, names, err
	}
	names.SandboxID = req.SandboxID
	if names.SandboxID != "" {
		s, err = c.presentSide(ctx, names.SandboxID, req.Wake)
		return s, names, err
	}
	v := snap.Snapshot
	if owner, owned := caller.OwnerOf(ctx); owned && owner.ID != v.Owner {
		return side{}, names, hutch.Errorf(hutch.Invalid, "the snapshot %q is shared with you, and its sandbox is not: name a snapshot or a sandbox of yours to compare it with", v.ID)
	}
	names.SandboxID = v.SandboxID
	s, err = c.presentSide(ctx, v.SandboxID, req.Wake)
	if errors.Is(err, hutch.NotFound) {
		err = hutch.Errorf(hutch.NotFound, "the sandbox %q, which the snapshot %q was made of, is gone: name another snapshot or a sandbox to compare it with", v.SandboxID, v.ID).Naming(hutch.AboutSandbox, v.SandboxID)
	}
	return s, names, err
}

// snapshotSide opens the files of a snapshot. They stay readable if the snapshot is deleted.
func snapshotSide(snap *snapshots.Snapshot) (side, error) {
	if err := snap.Verify(); err != nil {
		return side{}, err
	}
	return fileSide("the snapshot "+quoted(snap.Snapshot.ID), snap.Archive(), snap.Snapshot.Limits)
}

// ReadSnapshot calls read with a snapshot and with the files that its sandbox had added to or changed in the image, as
// a tar archive. The bytes of the archive came from inside the sandbox.
func (c comparer) ReadSnapshot(ctx context.Context, id string, read func(hutch.Snapshot, io.Reader) error) error {
	snap, err := c.life.snaps.Find(viewer(ctx), id)
	if err != nil {
		return err
	}
	files, err := snapshotSide(snap)
	if err != nil {
		return err
	}
	defer files.close()
	return files.Read(ctx, func(r io.Reader) error { return read(snap.Snapshot, r) })
}

func quoted(id string) string { return `"` + id + `"` }

func fileSide(name, path string, l hutch.Limits) (side, error) {
	f, err := os.Open(path)
	if err != nil {
		return side{}, err
	}
	read := func(_ context.Context, read func(io.Reader) error) error { return saved.ReadArchive(f, read) }
	return side{compare.Archive{Name: name, Most: saved.Most(l), Read: read}, func() { f.Close() }}, nil
}

// presentSide returns the files of a sandbox as they are now. It wakes a sleeping or paused sandbox only if wake is
// set.
func (c comparer) presentSide(ctx context.Context, id string, wake bool) (x side, err error) {
	if wake {
		s, agent, err := c.life.use(ctx, id)
		if err != nil {
			return side{}, err
		}
		return c.runningSide(s, agent), nil
	}
	s, err := c.life.find(ctx, id)
	if err != nil {
		return side{}, err
	}
	if agent := s.BeginUse(); agent != nil {
		return c.runningSide(s, agent), nil
	}
	err = c.life.hold(ctx, id, func(s *sandbox) (err error) {
		if agent := s.BeginUse(); agent != nil { // the sandbox was created or woken after the first check
			x = c.runningSide(s, agent)
			return nil
		}
		x, err = c.keptSide(s)
		return err
	})
	return x, err
}

// runningSide returns the files of a sandbox in use. The program tar in the sandbox packs them.
func (c comparer) runningSide(s *sandbox, agent *wire.Client) side {
	v := s.Record().Sandbox
	most := saved.Most(v.Limits)
	pack := func(ctx context.Context, read func(io.Reader) error) error {
		var failed error
		err := pipe.Through(func(w io.Writer) error {
			failed = saved.Pack(ctx, agent, v.Image, saved.Bounded(w, most))
			return failed
		}, read)
		if err != nil && errors.Is(err, failed) {
			err = c.life.diagnose(ctx, s, agent, err)
		}
		return err
	}
	return side{compare.Archive{Name: "the sandbox " + quoted(v.ID), Most: most, Read: pack}, s.EndUse}
}

// keptSide returns the files of a sandbox that was stopped. The caller holds the lifecycle lock.
func (c comparer) keptSide(s *sandbox) (side, error) {
	v := s.Record().Sandbox
	switch {
	case s.Gone():
		return side{}, notFound(v.ID)
	case v.Status == hutch.Stopped && !c.life.saved.HasMemory(s.Key()):
		return fileSide("the sandbox "+quoted(v.ID), c.life.saved.Archive(s.Key()), v.Limits)
	case v.Status == hutch.Failed:
		return side{}, hutch.Errorf(hutch.Conflict, "the sandbox %q has failed, and its files are lost: compare two snapshots", v.ID).Naming(hutch.AboutSandbox, v.ID)
	}
	return side{}, hutch.Errorf(hutch.Conflict, "the sandbox %q sleeps or is paused, and its files can only be read when it is awake: ask for that with wake, or compare two snapshots", v.ID).
		Naming(hutch.AboutSandbox, v.ID).With("wake", true)
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/travel"
)

// Snapshotters moves the snapshots of a node to and from a bucket. The methods are documented in package engine.
type Snapshotters interface {
	SendSnapshot(ctx context.Context, id string, do func(ctx context.Context, img travel.Image, send func(io.Writer) error) error) error
	ReceiveSnapshot(ctx context.Context, v hutch.Snapshot, read func(to func(io.Reader) error) error, commit func(context.Context) error) error
	DepartSnapshot(ctx context.Context, id string, leave func(context.Context) error) error
	CheckSnapshotsElsewhere(n int, size int64) error
}

// copiesEvery is how often a node looks for old copies of snapshots. An old copy is of a snapshot that, by the
// directory, another node has now, or only the bucket.
const copiesEvery = time.Minute

// recheckBad is the pause before a bad object in the bucket, whose old copy is here, is read again.
const recheckBad = 10 * time.Minute

// syncTime bounds one comparison of the directory with this node, because calls can wait for it.
const syncTime = 10 * time.Second

// snapshotKey is the prefix of the names of snapshots in the bucket. With it, nodes of older versions do not take a
// snapshot for an image without a sandbox, which they would remove.
const snapshotKey = "snapshot-"

// localSnapshots lists all snapshots here, as the server itself sees them.
func (c *carrier) localSnapshots(ctx context.Context) (map[string]hutch.Snapshot, error) {
	list, err := c.r.here.Snapshots(caller.With(ctx, caller.Caller{}))
	all := make(map[string]hutch.Snapshot, len(list))
	for _, s := range list {
		all[s.ID] = s
	}
	return all, err
}

// readSnapshots learns which snapshots are on this node by the directory, when the node starts or gets its lease back.
// A snapshot that is not here is released: the next node that needs it fetches it from the bucket.
func (c *carrier) readSnapshots(ctx context.Context) error {
	c.snapshots.syncing.Lock()
	defer c.snapshots.syncing.Unlock()
	c.snapshots.lookNow()
	if _, err := c.oldCopies(ctx); err != nil {
		return err
	}
	here, err := c.localSnapshots(ctx)
	if err != nil {
		return err
	}
	rows, err := c.dir().snapshotsOf(ctx, c.me())
	if err != nil {
		return err
	}
	for _, s := range rows {
		id := s.Record.ID
		switch _, ok := here[id]; {
		case ok:
			c.snapshots.set(id, keptSnapshot{owner: s.Record.Owner, image: s.Image})
		case s.Image == nil:
			_, err = c.dir().forgetSnapshot(ctx, c.me(), id)
		default:
			err = c.dir().releaseSnapshot(ctx, c.me(), id, s.Image.Key)
		}
		if err != nil && !errors.Is(err, errMoved) {
			return err
		}
	}
	return nil
}

// oldCopies lists the snapshots whose old copies are on this node. It removes the old copies of deleted snapshots.
func (c *carrier) oldCopies(ctx context.Context) ([]snapshotRow, error) {
	deleted, list, err := c.dir().copies(ctx, c.me())
	if err != nil {
		return nil, err
	}
	old := deleted
	for _, s := range list {
		old = append(old, s.Record.ID)
	}
	c.snapshots.setOld(old)
	for _, id := range deleted {
		c.removeCopy(ctx, id)
	}
	return list, nil
}

// checkCopy reads the bucket's object of a snapshot to its end, and then removes the old copy here. If the object was
// changed or is lost, the copy here can be the only good one. So the copy stays, and this node takes the snapshot back
// unless a live node has it.
func (c *carrier) checkCopy(ctx context.Context, s snapshotRow) {
	id := s.Record.ID
	if s.Image == nil || c.snapshots.failedWithin(id, recheckBad) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	here, err := c.localSnapshots(ctx)
	if _, ok := here[id]; ok && err == nil {
		err = travel.Check(ctx, c.Bucket, *s.Image)
	}
	switch {
	case err == nil:
		c.removeCopy(ctx, id)
	case isBad(err):
		c.takeBack(ctx, s)
	case ctx.Err() == nil:
		c.r.f.log.Info("an old copy of a snapshot stays for now: the bucket's could not be read", "snapshot", id, "err", err)
	}
}

// isBad reports whether an error of [travel.Check] means that an object in the bucket is lost or was changed.
func isBad(err error) bool { return errors.Is(err, travel.ErrForged) || errors.Is(err, fs.ErrNotExist) }

// takeBack assigns a snapshot that is bad in the bucket to this node again, because this node has a copy, and writes
// the copy to the bucket. If a live node has the snapshot, takeBack does nothing.
func (c *carrier) takeBack(ctx context.Context, s snapshotRow) {
	id := s.Record.ID
	if !c.snapshotLocks.Try(id) {
		return
	}
	defer c.snapshotLocks.Put(id)
	switch err := c.dir().claimSnapshot(ctx, s, c.me(), false); {
	case err == nil:
		c.snapshots.set(id, keptSnapshot{owner: s.Record.Owner, old: s.Image.Key})
		c.r.f.log.Warn("the bucket has lost a snapshot, or has a changed one: this node has a copy, and writes it again", "snapshot", id, "object", s.Image.Key)
	case errors.Is(err, errMoved): // a live node has it, or it was deleted just now
		if c.snapshots.fail(id, "it is bad in the bucket") {
			c.r.f.log.Warn("the bucket has lost a snapshot that another node has, or has a changed one: the old copy here stays", "snapshot", id, "object", s.Image.Key)
		}
	}
}

// removeCopy removes an old copy of a snapshot. If the snapshot is being used or fetched, the copy stays until the next
// time.
func (c *carrier) removeCopy(ctx context.Context, id string) {
	if !c.snapshotLocks.Try(id) {
		return
	}
	defer c.snapshotLocks.Put(id)
	err := c.Engine.DepartSnapshot(ctx, id, func(context.Context) error {
		err := c.dir().isCopy(ctx, c.me(), id)
		if err == nil {
			c.snapshots.remove(id)
		}
		return err
	})
	if err == nil {
		err = c.dir().copyRemoved(ctx, c.me(), id)
	}
	if err != nil && !errors.Is(err, errMoved) { // errMoved: this node has it again
		c.r.f.log.Warn("a snapshot that this node does not have any more could not be removed here yet", "snapshot", id, "err", err)
	}
}

// syncSnapshots records in the directory which snapshots this node has, and their names. It makes no query when nothing
// has changed.
func (c *carrier) syncSnapshots(ctx context.Context) error {
	c.snapshots.syncing.Lock()
	defer c.snapshots.syncing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	before := c.snapshots.ids() // read first, so that a snapshot that arrives during this call does not count as missing
	here, err := c.localSnapshots(ctx)
	if err != nil {
		return err
	}
	for id, v := range here {
		known, ok := c.snapshots.find(id)
		if ok && reflect.DeepEqual(known.seen, v) || c.snapshots.isOld(id) {
			continue
		}
		if err := c.recordSnapshot(ctx, v); err != nil {
			return err
		}
	}
	for _, id := range before {
		_, there := here[id]
		if _, known := c.snapshots.find(id); there || !known { // a snapshot that has left this node is not deleted
			continue
		}
		key, err := c.dir().forgetSnapshot(ctx, c.me(), id)
		if err != nil {
			return err
		}
		c.snapshots.remove(id)
		c.drop(key)
	}
	return nil
}

// recordSnapshot records one snapshot as its owner sees it, so the record contains no secret of the owner. If the
// snapshot is elsewhere by the directory, the files here are an old copy, and checkCopy decides about them.
func (c *carrier) recordSnapshot(ctx context.Context, v hutch.Snapshot) error {
	if _, known := c.snapshots.find(v.ID); !known {
		// If the lock is taken, the snapshot is just leaving this node or coming to it. It is skipped: if it left
		// between the list here and the directory's answer, and was claimed again, it would count as deleted.
		if !c.snapshotLocks.Try(v.ID) {
			return nil
		}
		defer c.snapshotLocks.Put(v.ID)
	}
	shown, err := c.r.here.Snapshots(caller.With(ctx, caller.Caller{Owner: &caller.Owner{ID: v.Owner}}))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(shown, func(s hutch.Snapshot) bool { return s.ID == v.ID })
	if i < 0 { // the snapshot was deleted just now
		return nil
	}
	img, err := c.dir().recordSnapshot(ctx, c.me(), shown[i])
	if errors.Is(err, errMoved) {
		c.snapshots.noteOld(v.ID)
		return c.dir().markCopy(ctx, c.me(), v.ID)
	}
	if err == nil {
		c.snapshots.set(v.ID, keptSnapshot{seen: v, owner: v.Owner, image: img})
	}
	return err
}

// snapshotRound does the background work of snapshots: it writes those of this node to the bucket, and empties a node
// that is drained.
func (c *carrier) snapshotRound(ctx context.Context) {
	if !c.snapshots.rounds.TryLock() {
		return
	}
	defer c.snapshots.rounds.Unlock()
	err := c.syncSnapshots(ctx)
	var old []snapshotRow
	if err == nil && c.snapshots.lookDue() {
		old, err = c.findOld(ctx)
	}
	if err != nil {
		c.r.f.log.Warn("the fleet's directory was not told of the snapshots of this node", "err", err)
		return
	}
	defer func() { each(c, ctx, old, c.checkCopy) }()
	if self, _ := c.r.f.node.find(c.me()); self.State == hutch.NodeDraining {
		each(c, ctx, c.snapshots.ids(), c.sendSnapshotAway)
		c.releaseClaims(ctx)
		return
	}
	due := slices.DeleteFunc(c.snapshots.ids(), func(id string) bool { return !c.snapshots.due(id) })
	each(c, ctx, due, c.keepSnapshotNow)
}

// findOld calls oldCopies with a time limit, because calls can wait for it.
func (c *carrier) findOld(ctx context.Context) ([]snapshotRow, error) {
	c.snapshots.syncing.Lock()
	defer c.snapshots.syncing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	return c.oldCopies(ctx)
}

// keepSnapshots writes the snapshots here to the bucket. It returns after one attempt for each of them.
func (c *carrier) keepSnapshots(ctx context.Context) {
	if err := c.syncSnapshots(ctx); err != nil {
		c.r.f.log.Warn("the snapshots here could not be recorded for the bucket", "err", err)
	}
	each(c, ctx, c.snapshots.ids(), c.keepSnapshotNow)
}

// keepSnapshotNow writes a snapshot to the bucket. If that fails, the directory and the log have the reason.
func (c *carrier) keepSnapshotNow(ctx context.Context, id string) {
	err := c.keepSnapshot(ctx, id)
	if errors.Is(err, errMoved) {
		c.snapshots.remove(id) // the next comparison finds out the snapshot's state
		return
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	if _, here := c.snapshots.find(id); !here || hutch.KindOf(err) == hutch.NotFound {
		return // the snapshot was deleted in the meantime
	}
	if c.snapshots.fail(id, err.Error()) {
		c.r.f.log.Warn("a snapshot is on this node only", "snapshot", id, "err", err)
		c.dir().recordSnapshotStay(ctx, c.me(), id, err.Error())
	}
}

// keepSnapshot writes a snapshot to the bucket, if the bucket does not have it.
func (c *carrier) keepSnapshot(ctx context.Context, id string) error {
	if err := c.snapshotLocks.Take(ctx, id); err != nil {
		return err
	}
	defer c.snapshotLocks.Put(id)
	s, ok := c.snapshots.find(id)
	if !ok || s.image != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	return c.Engine.SendSnapshot(ctx, id, func(ctx context.Context, of travel.Image, send func(io.Writer) error) error {
		img, err := c.writeAs(ctx, snapshotKey, sealedSnapshot(s.owner, id), of, send, func(img travel.Image) error { return c.dir().keepSnapshot(ctx, c.me(), id, img) })
		if c.did(SnapshotSaved, err); err == nil {
			c.snapshots.setImage(id, &img)
			c.drop(s.old)
		}
		return err
	})
}

// sealedSnapshot binds an image to one snapshot.
func sealedSnapshot(owner, id string) string {
	return fmt.Sprintf("snapshot %d:%s%s", len(owner), owner, id)
}

// sendSnapshotAway removes a snapshot from a drained node, once the bucket has it and another node could use it. A
// snapshot that cannot leave is not changed, and the directory records why.
func (c *carrier) sendSnapshotAway(ctx context.Context, id string) {
	err := c.releaseSnapshot(ctx, id)
	if errors.Is(err, errMoved) { // another node took it over, or an earlier release succeeded but its answer was lost
		c.snapshots.remove(id) // the next comparison finds out the snapshot's state
		return
	}
	if err == nil || ctx.Err() != nil || hutch.KindOf(err) == hutch.NotFound {
		return
	}
	c.r.f.log.Warn("a snapshot cannot leave this node", "snapshot", id, "err", err)
	c.dir().recordSnapshotStay(ctx, c.me(), id, err.Error()) // the full error, because an operator reads the reason
}

// releaseClaims gives up snapshots that were claimed for a node that is now drained, and that it has not begun to
// fetch.
func (c *carrier) releaseClaims(ctx context.Context) {
	rows, err := c.dir().snapshotsOf(ctx, c.me())
	if err != nil {
		return
	}
	for _, s := range rows {
		id := s.Record.ID
		if s.Image == nil || !c.snapshotLocks.Try(id) {
			continue
		}
		if _, here := c.snapshots.find(id); !here {
			c.dir().releaseSnapshot(ctx, c.me(), id, s.Image.Key) // after an error, the next round tries again
		}
		c.snapshotLocks.Put(id)
	}
}

func (c *carrier) releaseSnapshot(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	if err := c.keepSnapshot(ctx, id); err != nil {
		return err
	}
	s, ok := c.snapshots.find(id)
	if !ok || s.image == nil {
		return nil // the snapshot was deleted in the meantime
	}
	if _, err := c.dir().nodeFor(ctx, snapshotRow{Record: hutch.Snapshot{ID: id}, Image: s.image}.cargo(nil), "", c.me()); err != nil {
		return err
	}
	// The files here will be removed, so read the bucket's copy back first.
	switch err := travel.Check(ctx, c.Bucket, *s.image); {
	case isBad(err):
		c.snapshots.setImage(id, nil) // so that it is written again; until then the directory has the old key
		return hutch.Errorf(hutch.Unavailable, "the bucket does not have what was written to it").Because(err)
	case err != nil:
		return fmt.Errorf("read it back from the bucket: %w", err)
	}
	if err := c.snapshotLocks.Take(ctx, id); err != nil { // because this node can claim the snapshot as soon as it is released
		return err
	}
	defer c.snapshotLocks.Put(id)
	err := c.Engine.DepartSnapshot(ctx, id, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, syncTime) // a limit, because creates wait for it
		defer cancel()
		err := c.dir().leaveSnapshot(ctx, c.me(), id, s.image.Key)
		if err == nil {
			c.snapshots.remove(id) // forget the snapshot before its files go: removing them does not delete it
		}
		return err
	})
	if err == nil {
		c.r.f.log.Info("a snapshot is in the bucket only", "snapshot", id)
		err = c.dir().copyRemoved(ctx, c.me(), id)
	}
	return err
}

// bringSnapshot fetches a snapshot that was claimed for this node from the bucket. After an error it gives up the
// claim.
func (c *carrier) bringSnapshot(ctx context.Context, s snapshotRow) error {
	id := s.Record.ID
	if err := c.snapshotLocks.Take(ctx, id); err != nil {
		return err
	}
	defer c.snapshotLocks.Put(id)
	if known, here := c.snapshots.find(id); here {
		c.snapshots.set(id, known) // it may have been an old copy before the claim
		return nil
	}
	ctx, cancel := c.transferContext(ctx)
	defer cancel()
	began := time.Now()
	err := c.fetchSnapshot(ctx, s)
	c.did(SnapshotFetched, err)
	if err == nil {
		c.r.f.log.Info("fetched a snapshot from the bucket", "snapshot", id, "bytes", s.Image.Size, "took", time.Since(began))
		return nil
	}
	c.r.f.log.Warn("a snapshot could not be fetched from the bucket, and stays there", "snapshot", id, "err", err, "cause", hutch.AsError(err).Cause)
	released := c.dir().releaseSnapshot(ctx, c.me(), id, s.Image.Key)
	moved := errors.Is(released, errMoved)
	if released != nil && !moved {
		c.r.f.log.Warn("the fleet's directory was not told that a snapshot is in the bucket only", "snapshot", id, "err", released)
	}
	switch {
	case errors.Is(err, errMoved), errors.Is(err, travel.ErrLost) && moved: // deleting a snapshot deletes its object
		return hutch.Errorf(hutch.NotFound, "there is no snapshot %q any more: it was deleted while it was fetched from the fleet's bucket", id)
	case errors.Is(err, travel.ErrForged):
		return hutch.Errorf(hutch.Denied, "the snapshot %q in the bucket was not written by this fleet, or was changed since: nothing of it was used; restore the object %s in the bucket from a copy, or delete the snapshot", id, s.Image.Key)
	case errors.Is(err, travel.ErrLost):
		return hutch.Errorf(hutch.Unavailable, "the bucket has lost the snapshot %q: restore the object %s in the bucket from a copy, or delete the snapshot", id, s.Image.Key).Because(err)
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the snapshot %q could not be fetched from the fleet's bucket: try again in a moment; the log of the node %s has the cause", id, c.me()).Because(err)
}

func (c *carrier) fetchSnapshot(ctx context.Context, s snapshotRow) error {
	id := s.Record.ID
	if err := c.machine.Lacks(s.Image.Needs); err != nil {
		return hutch.Errorf(hutch.Unavailable, "the snapshot %q cannot be used on the node %s: %v; it stays in the bucket", id, c.me(), err)
	}
	if err := c.bringBuild(ctx, s.Image.Needs); err != nil {
		return hutch.Errorf(hutch.Unavailable, "the snapshot %q stays in the bucket: its programs could not be fetched to the node %s: %v", id, c.me(), err).Because(err)
	}
	mine := false
	err := c.Engine.ReceiveSnapshot(ctx, s.Record, func(to func(io.Reader) error) error {
		return travel.Read(ctx, c.Bucket, c.Key, *s.Image, sealedSnapshot(s.Record.Owner, id), to)
	}, func(ctx context.Context) (err error) {
		mine, err = c.dir().hasSnapshot(ctx, c.me(), id, s.Image.Key)
		return err
	})
	switch { // not earlier: a known snapshot that is not here counts as deleted
	case err == nil && mine:
		c.snapshots.set(id, keptSnapshot{owner: s.Record.Owner, image: s.Image})
	case err == nil: // this node was full, so another one has the snapshot now; calls that waited use the files here
		c.snapshots.noteOld(id)
	}
	return err
}

// cleanSnapshots removes expired snapshots that no node has.
func (c *carrier) cleanSnapshots(ctx context.Context) {
	keys, err := c.dir().expiredSnapshots(ctx)
	if err != nil {
		return
	}
	for _, key := range keys {
		c.drop(key)
	}
}

package volume

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"sync"
	"time"

	"hutch"
	"hutch/internal/bucket"
	"hutch/internal/durable"
	"hutch/internal/fairqueue"
)

const (
	mostObjects = 100_000 // most objects of a bucket, which are in memory during an exchange
	// syncsAtOnce is how many exchanges run at once; an owner has one at a time. An exchange that takes longer than
	// slowSync, because it is large or the service is slow, lets an exchange of another owner begin, up to mostSyncs.
	// At that number, a slow exchange is ended to make room for another owner's; what it has written stays.
	syncsAtOnce = 8
	mostSyncs   = 32
	slowSync    = 30 * time.Second
	syncTime    = 30 * time.Minute
	syncTries   = 3 // exchanges in which objects change meanwhile
	checkTime   = 20 * time.Second
)

// CheckBucket refuses a bucket that cannot be read.
func (s *Store) CheckBucket(ctx context.Context, owner string, b hutch.VolumeBucket) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	opened, err := s.openBucket(owner, b)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(opened.List(ctx))
	defer stop()
	_, err, _ = next()
	return err
}

func (s *Store) openBucket(owner string, b hutch.VolumeBucket) (*bucket.Bucket, error) {
	at, err := bucket.Parse(b.URL)
	if err != nil {
		return nil, err
	}
	key := ""
	if b.KeySecret != "" {
		if s.opt.Secret == nil {
			return nil, hutch.Errorf(hutch.Unsupported, "this command has no secrets: start a server with `hutch serve`")
		}
		if key, err = s.opt.Secret(owner, b.KeySecret); err != nil {
			return nil, err
		}
	}
	return bucket.Open(at, b.KeyID, key, s.transport)
}

// Sync exchanges changes with the bucket of a volume: first it writes the volume's changes to the bucket, and then it
// applies the bucket's changes to the volume. free is called with the store locked, and its error leaves the content
// unchanged: a sandbox that writes to the volume started with the old content, and its next save would treat new files
// of the bucket as deleted. A volume without a bucket is not changed.
func (s *Store) Sync(ctx context.Context, owner, name string, free func() error) error {
	k := key{owner, name}
	rec, err := s.copyOf(k)
	if err != nil || rec.Volume.Bucket == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	home := filepath.Dir(s.folder(k))
	if err := s.syncs.Take(ctx, home); err != nil {
		return err
	}
	defer s.syncs.Put(home)
	job, end, err := s.slots.Begin(ctx, k.owner)
	if err != nil {
		return err
	}
	defer end()
	for range syncTries {
		if err = s.exchange(job, k, free); !errors.Is(err, bucket.ErrChanged) {
			break
		}
	}
	if err != nil && errors.Is(context.Cause(job), fairqueue.ErrShare) {
		err = hutch.Errorf(hutch.Unavailable, "exchanges of other owners wait, and this one took longer than %v: try again in a moment", slowSync).Because(err)
	}
	if errors.Is(err, bucket.ErrChanged) {
		err = hutch.Errorf(hutch.Unavailable, "objects of the bucket change while they are copied: try again").Because(err)
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.setProblem(k, func(v *hutch.Volume) *string { return &v.BucketProblem }, err)
	}
	if err != nil {
		return hutch.Errorf(hutch.KindOf(err), "the volume %q and its bucket: %s", name, hutch.AsError(err).Message).Because(err)
	}
	return nil
}

// copyOf returns a copy of a record.
func (s *Store) copyOf(k key) (record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.findLocked(k)
	if err != nil {
		return record{}, err
	}
	return *rec, nil
}

// exchange is one try of Sync: the volume, its bucket, and what was equal on both sides at the end of the last
// exchange.
type exchange struct {
	s   *Store
	k   key
	rec record
	b   *bucket.Bucket
	l   *listing
	old base
}

// exchange tries to sync a volume once.
func (s *Store) exchange(ctx context.Context, k key, free func() error) (err error) {
	x := &exchange{s: s, k: k}
	if x.rec, err = s.copyOf(k); err != nil {
		return err
	}
	if x.b, err = s.openBucket(k.owner, *x.rec.Volume.Bucket); err != nil {
		return err
	}
	if x.l, err = s.list(ctx, x.b); err != nil {
		return err
	}
	if x.old, err = s.readBase(k, x.rec); err != nil {
		return err
	}
	if x.rec.unsynced() {
		if err := x.push(ctx); err != nil {
			return err
		}
		if x.rec, err = s.copyOf(k); err != nil || x.rec.unsynced() {
			return err // the volume was saved in between: the next exchange follows soon
		}
		if x.l, err = s.list(ctx, x.b); err != nil {
			return err
		}
	}
	return x.pull(ctx, free)
}

// list lists a bucket.
func (s *Store) list(ctx context.Context, b *bucket.Bucket) (*listing, error) {
	l := &listing{map[string]bucket.Object{}, map[string]bool{}, map[string]bool{}}
	names := 0
	for o, err := range b.List(ctx) {
		if err == nil {
			err = l.add(o)
		}
		if err != nil {
			return nil, err
		}
		// A key can name hundreds of folders, each of which takes more memory than its part of the key.
		if names += len(o.Key); len(l.files)+len(l.folders) > min(s.entries, mostObjects) || len(l.parents) > s.entries || names > mostNames {
			return nil, hutch.Errorf(hutch.Exhausted, "the bucket has more than %d objects, %d folders or %d MiB of keys, which no volume can have: use a prefix with fewer", min(s.entries, mostObjects), s.entries, mostNames>>20).With("limit", "volume")
		}
	}
	return l, l.check()
}

// KeepSynced writes changes of volumes to their buckets, until ctx is done. An exchange that fails is tried again later
// and later.
func (s *Store) KeepSynced(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var due sync.Map // when a volume is tried again; a volume that is being synced is not in it
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, k := range s.unsyncedKeys() {
			if at, known := due.Load(k); known && time.Now().Before(at.(time.Time)) {
				continue
			}
			due.Store(k, time.Now().Add(2*syncTime))
			running.Go(func() {
				due.Store(k, time.Now().Add(s.syncLater(ctx, k, every)))
			})
		}
	}
}

// syncLater writes the changes of a volume to its bucket, and returns how long the next try waits.
func (s *Store) syncLater(ctx context.Context, k key, every time.Duration) time.Duration {
	began := time.Now()
	err := s.Sync(ctx, k.owner, k.name, neverFree)
	if err == nil || ctx.Err() != nil {
		return 0
	}
	s.opt.Log.Warn("write a volume to its bucket", "volume", k.name, "err", err)
	return min(10*max(every, time.Since(began)), syncTime)
}

var errNotNow = errors.New("only changes of the volume are written")

func neverFree() error { return errNotNow }

// unsyncedKeys lists the volumes with changes that are not in their buckets.
func (s *Store) unsyncedKeys() (list []key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, rec := range s.volumes {
		if rec.unsynced() {
			list = append(list, k)
		}
	}
	return list
}

// update changes the record of a volume, if it is still the volume of rec.
func (s *Store) update(k key, rec record, change func(*record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.sameLocked(k, rec)
	if err != nil {
		return err
	}
	now := *old
	change(&now)
	if err := s.write(k, &now); err != nil {
		return durable.Explained(err, s.dir)
	}
	s.volumes[k] = &now
	return removeOld(s.folder(k), old, &now)
}

// sameLocked finds a volume, if it is still the volume of rec and not a new one with the same name.
func (s *Store) sameLocked(k key, rec record) (*record, error) {
	now, err := s.findLocked(k)
	if err == nil && !now.Volume.CreatedAt.Equal(rec.Volume.CreatedAt) {
		err = hutch.Errorf(hutch.NotFound, "the volume %q was deleted meanwhile", k.name)
	}
	return now, err
}

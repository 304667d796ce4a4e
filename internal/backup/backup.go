// Package backup keeps copies of sandboxes' folders in a [objects.Store]: a folder of this
// machine, or a bucket of an S3-compatible service.
//
// A backup is two objects. The first is a tar archive of the folder, compressed with
// Zstandard; it is packed and unpacked inside the sandbox, so the server never parses it.
// The second is a record with the backup's description and checksum, written after the archive.
// So no backup is partial: an archive without a record does not count, and an
// archive that does not match its checksum is not restored.
package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/ctxlock"
	"hutch/internal/objects"
)

// Options configure backups; only Service and Store are required.
type Options struct {
	Service hutch.Service
	Store   objects.Store
	// Room is how many bytes the backups of one owner can take; default 10 GiB.
	Room int64
	Log  *slog.Logger
}

// DefaultRoom is how many bytes an owner's backups can take by default.
const DefaultRoom = 10 << 30

// Backups implements hutch.Backups for the owner in the context.
type Backups struct {
	svc   hutch.Service
	store objects.Store
	room  int64
	log   *slog.Logger
	now   func() time.Time

	turns ctxlock.Locks // by owner's folder: one backup at a time, so that together they stay within the limit
}

var _ hutch.Backups = (*Backups)(nil)

// New returns the backups of opt.Service.
func New(opt Options) *Backups {
	return &Backups{
		svc: opt.Service, store: opt.Store, room: cmp.Or(opt.Room, DefaultRoom), now: time.Now,
		log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
	}
}

// record is the second object of a backup.
type record struct {
	Version int          `json:"version"`
	Backup  hutch.Backup `json:"backup"`
	SHA256  string       `json:"sha256"` // SHA-256 of the archive
}

const (
	version  = 1
	maxOwned = 1000    // backups of one owner
	maxNote  = 8 << 10 // bytes of a record

	archiveSuffix = ".tar.zst"
	recordSuffix  = ".json"
)

// folder returns the folder of the owner's backups. An owner's name can be any text.
func folder(ctx context.Context) string {
	owner, _ := caller.OwnerOf(ctx)
	sum := sha256.Sum256([]byte(owner.ID))
	return hex.EncodeToString(sum[:16]) + "/"
}

// Backup implements hutch.Backups.
func (b *Backups) Backup(ctx context.Context, sandbox string, req hutch.BackupRequest) (hutch.Backup, error) {
	if err := req.Check(); err != nil {
		return hutch.Backup{}, err
	}
	home := folder(ctx)
	if err := b.turns.Take(ctx, home); err != nil {
		return hutch.Backup{}, err
	}
	defer b.turns.Put(home)
	room, err := b.left(ctx, home)
	if err != nil {
		return hutch.Backup{}, err
	}
	dir, err := b.svc.Stat(ctx, sandbox, cmp.Or(req.Dir, "/workspace"))
	if err != nil {
		return hutch.Backup{}, err
	}
	made := hutch.Backup{ID: hutch.NewID("bk"), Name: req.Name, SandboxID: sandbox, Dir: dir.Path, CreatedAt: b.now().UTC()}
	if req.TTL > 0 {
		expires := made.CreatedAt.Add(req.TTL.Duration())
		made.ExpiresAt = &expires
	}
	if err := b.write(ctx, home, &made, room); err != nil {
		return hutch.Backup{}, errors.Join(err, b.remove(context.WithoutCancel(ctx), home, made.ID))
	}
	return made, nil
}

// write writes both objects of a backup, of at most room bytes.
func (b *Backups) write(ctx context.Context, home string, made *hutch.Backup, room int64) error {
	sum := sha256.New()
	counted := &counter{w: sum, room: room}
	packing, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	go func() { w.CloseWithError(b.pack(packing, made, w)) }()
	err := b.store.Put(ctx, home+made.ID+archiveSuffix, io.TeeReader(r, counted))
	cancel()
	r.Close()
	if counted.err != nil {
		return counted.err
	}
	if err != nil {
		return err
	}
	made.Size = counted.n
	note, err := json.Marshal(record{version, *made, hex.EncodeToString(sum.Sum(nil))})
	if err != nil {
		return err
	}
	return b.store.Put(ctx, home+made.ID+recordSuffix, bytes.NewReader(note))
}

// pack writes the compressed archive of a folder.
func (b *Backups) pack(ctx context.Context, of *hutch.Backup, w io.Writer) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	err = b.svc.Pack(ctx, of.SandboxID, hutch.PackRequest{Dir: of.Dir, Format: hutch.Tar}, z)
	return errors.Join(err, z.Close())
}

// counter counts and hashes the stored bytes.
type counter struct {
	w       io.Writer
	n, room int64
	err     error
}

func (c *counter) Write(p []byte) (int, error) {
	if c.n += int64(len(p)); c.n > c.room {
		c.err = full(c.room)
		return 0, c.err
	}
	return c.w.Write(p)
}

func full(room int64) error {
	return hutch.Errorf(hutch.Exhausted, "the backups would take more than the %d bytes that are left for them: delete some, or back up a smaller folder", room).
		With("limit", "backups")
}

// left returns the owner's remaining limit, in bytes.
func (b *Backups) left(ctx context.Context, home string) (int64, error) {
	all, err := b.list(ctx, home)
	if err != nil {
		return 0, err
	}
	if len(all) >= maxOwned {
		return 0, hutch.Errorf(hutch.Exhausted, "there are %d backups, as many as one may have: delete some", len(all)).With("limit", "backups")
	}
	left := b.room
	for _, one := range all {
		left -= one.Size
	}
	if left <= 0 {
		return 0, full(0)
	}
	return left, nil
}

// Backups implements hutch.Backups.
func (b *Backups) Backups(ctx context.Context) ([]hutch.Backup, error) {
	return b.list(ctx, folder(ctx))
}

// list returns the live backups below a folder, oldest first. It removes expired ones.
func (b *Backups) list(ctx context.Context, home string) ([]hutch.Backup, error) {
	keys, err := b.store.List(ctx, home)
	if err != nil {
		return nil, err
	}
	var all []hutch.Backup
	for _, key := range keys {
		id, ok := strings.CutSuffix(strings.TrimPrefix(key, home), recordSuffix)
		if !ok {
			continue
		}
		rec, err := b.record(ctx, home, id)
		switch kind := hutch.KindOf(err); {
		case err == nil:
			all = append(all, rec.Backup)
		case kind != hutch.NotFound:
			b.log.Warn("read a backup's record", "backup", id, "err", err)
		}
	}
	slices.SortFunc(all, func(a, b hutch.Backup) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// record reads the record of a backup.
func (b *Backups) record(ctx context.Context, home, id string) (record, error) {
	if err := hutch.CheckID(id); err != nil {
		return record{}, err
	}
	none := hutch.Errorf(hutch.NotFound, "there is no backup %q: list those there are", id)
	r, err := b.store.Get(ctx, home+id+recordSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, none
	}
	if err != nil {
		return record{}, err
	}
	defer r.Close()
	var rec record
	text, err := io.ReadAll(io.LimitReader(r, maxNote))
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	switch {
	case err != nil || rec.Backup.ID != id:
		return rec, hutch.Errorf(hutch.Internal, "the record of the backup %q is damaged: delete it", id).Because(err)
	case rec.Version != version:
		return rec, hutch.Errorf(hutch.Unsupported, "the backup %q is in format %d, and this hutch knows %d: restore it with the version that made it", id, rec.Version, version)
	case rec.Backup.ExpiresAt != nil && b.now().After(*rec.Backup.ExpiresAt):
		return rec, errors.Join(none, b.remove(ctx, home, id))
	}
	return rec, nil
}

// DeleteBackup implements hutch.Backups. A damaged backup can be deleted, too.
func (b *Backups) DeleteBackup(ctx context.Context, id string) error {
	home := folder(ctx)
	if _, err := b.record(ctx, home, id); err != nil && hutch.KindOf(err) != hutch.Internal {
		return err
	}
	return b.remove(ctx, home, id)
}

// remove removes the record first: without it, the archive does not count.
func (b *Backups) remove(ctx context.Context, home, id string) error {
	return errors.Join(b.store.Delete(ctx, home+id+recordSuffix), b.store.Delete(ctx, home+id+archiveSuffix))
}

// Sweep removes expired backups of all owners, and old archives without a record.
func (b *Backups) Sweep(ctx context.Context) error {
	keys, err := b.store.List(ctx, "")
	if err != nil {
		return err
	}
	slices.Sort(keys)
	for _, key := range keys {
		home, name := path.Split(key)
		if id, ok := strings.CutSuffix(name, recordSuffix); ok {
			_, err = b.record(ctx, home, id)
		} else if id, ok := strings.CutSuffix(name, archiveSuffix); ok {
			err = b.orphan(ctx, home, id, keys)
		}
		if err != nil && hutch.KindOf(err) != hutch.NotFound {
			b.log.Warn("look after a backup", "key", key, "err", err)
		}
	}
	return ctx.Err()
}

// orphan removes an archive without a record, unless its owner is creating it now.
func (b *Backups) orphan(ctx context.Context, home, id string, keys []string) error {
	if _, found := slices.BinarySearch(keys, home+id+recordSuffix); found {
		return nil
	}
	if err := b.turns.Take(ctx, home); err != nil {
		return err
	}
	defer b.turns.Put(home)
	if _, err := b.record(ctx, home, id); hutch.KindOf(err) != hutch.NotFound {
		return err
	}
	return b.remove(ctx, home, id)
}

// KeepSwept sweeps now and at intervals, until ctx is done.
func (b *Backups) KeepSwept(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := b.Sweep(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("look for expired backups", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/zstd"

	"hutch"
	"hutch/internal/pipe"
)

// aside begins the name of the folder into which a backup is unpacked. It is inside the target folder, because there it
// is on the same file system, and the folder's user can write there.
const aside = "restoring-"

// RestoreBackup implements hutch.Backups.
func (b *Backups) RestoreBackup(ctx context.Context, id string, req hutch.RestoreBackupRequest) error {
	home := folder(ctx)
	rec, err := b.record(ctx, home, id)
	if err != nil {
		return err
	}
	dir := cmp.Or(req.Dir, rec.Backup.Dir)
	if err := b.svc.Mkdir(ctx, req.SandboxID, dir, true); err != nil {
		return err
	}
	beside := strings.TrimRight(dir, "/") + "/" + hutch.NewID(aside+id)
	err = b.unpack(ctx, home, rec, req.SandboxID, beside)
	if err == nil {
		err = b.replace(ctx, req.SandboxID, dir, beside)
	}
	if err != nil {
		gone := b.svc.Delete(context.WithoutCancel(ctx), req.SandboxID, beside, true)
		if gone != nil && hutch.KindOf(gone) != hutch.NotFound {
			b.log.Warn("remove half a backup", "sandbox", req.SandboxID, "err", gone)
		}
	}
	return err
}

// unpack unpacks the whole backup into a folder, and checks it against its record.
func (b *Backups) unpack(ctx context.Context, home string, rec record, sandbox, dir string) error {
	damaged := hutch.Errorf(hutch.Internal, "the backup %q is damaged, and was not restored: restore another, and delete this one", rec.Backup.ID)
	r, err := b.store.Get(ctx, home+rec.Backup.ID+archiveSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged.Because(err)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	sum := summed{r: r, sum: sha256.New()}
	z, err := zstd.NewReader(&sum, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return err
	}
	in := pipe.NewSource(z) // z is not closed: it holds only memory
	err = b.svc.Unpack(ctx, sandbox, hutch.UnpackRequest{Dir: dir, Format: hutch.Tar}, in)
	if err == nil {
		_, err = io.Copy(io.Discard, in) // data after the archive's end
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case in.Failure() != nil:
		return damaged.Because(in.Failure())
	case err != nil:
		return err
	}
	if _, err := io.Copy(io.Discard, &sum); err != nil || sum.n != rec.Backup.Size || hex.EncodeToString(sum.sum.Sum(nil)) != rec.SHA256 {
		return damaged.Because(err)
	}
	return nil
}

// summed hashes the bytes that are read.
type summed struct {
	r   io.Reader
	sum hash.Hash
	n   int64
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.sum.Write(p[:n])
	s.n += int64(n)
	return n, err
}

// replace moves the content of the temporary folder into dir, and removes everything that was there.
func (b *Backups) replace(ctx context.Context, sandbox, dir, beside string) error {
	old, err := b.names(ctx, sandbox, dir)
	if err != nil {
		return err
	}
	fresh, err := b.names(ctx, sandbox, beside)
	if err != nil {
		return err
	}
	spared := beside[strings.LastIndexByte(beside, '/')+1:]
	for _, f := range old {
		if f.Name == spared {
			continue
		}
		if err := b.svc.Delete(ctx, sandbox, f.Path, true); err != nil {
			return err
		}
	}
	for _, f := range fresh {
		if err := b.svc.Move(ctx, sandbox, f.Path, strings.TrimRight(dir, "/")+"/"+f.Name, true); err != nil {
			return err
		}
	}
	return b.svc.Delete(ctx, sandbox, beside, true)
}

// names are the names in a folder.
func (b *Backups) names(ctx context.Context, sandbox, dir string) (all []hutch.FileInfo, err error) {
	err = b.svc.ListFiles(ctx, sandbox, hutch.ListRequest{Path: dir, Hidden: true, Limit: 1 << 20}, func(f hutch.FileInfo) error {
		all = append(all, f)
		return nil
	})
	return all, err
}

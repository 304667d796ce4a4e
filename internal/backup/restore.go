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

// aside is the prefix of the name of the folder into which a backup is unpacked. That folder is inside the target
// folder, so it is on the same file system, and the target folder's user can write to it.
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
	dir = strings.TrimRight(dir, "/")
	spared := beside[strings.LastIndexByte(beside, '/')+1:]
	err := b.takeOut(ctx, sandbox, dir, spared, func(name string) error {
		return b.svc.Delete(ctx, sandbox, dir+"/"+name, true)
	})
	if err != nil {
		return err
	}
	err = b.takeOut(ctx, sandbox, beside, "", func(name string) error {
		return b.svc.Move(ctx, sandbox, beside+"/"+name, dir+"/"+name, true)
	})
	if err != nil {
		return err
	}
	return b.svc.Delete(ctx, sandbox, beside, true)
}

const (
	namesAtOnce = 5000    // most names of a folder in memory
	mostNames   = 1 << 20 // most names that takeOut handles
)

// takeOut calls out, which removes a name from the folder, with each name except spared, until the folder is empty. It
// lists the folder in parts, because the names can be too many for the server's memory.
func (b *Backups) takeOut(ctx context.Context, sandbox, dir, spared string, out func(name string) error) error {
	for n := 0; n < mostNames; {
		var names []string
		err := b.svc.ListFiles(ctx, sandbox, hutch.ListRequest{Path: cmp.Or(dir, "/"), Hidden: true, Limit: namesAtOnce}, func(f hutch.FileInfo) error {
			if f.Name != spared {
				names = append(names, f.Name)
			}
			return nil
		})
		if len(names) == 0 || err != nil && !errors.Is(err, hutch.Exhausted) {
			return err
		}
		for _, name := range names {
			if err := out(name); err != nil {
				return err
			}
		}
		n += len(names)
	}
	return hutch.Errorf(hutch.Exhausted, "the folder %.200q does not become empty: a program writes to it, or it has more than %d files. End the program, and try again", cmp.Or(dir, "/"), mostNames).With("limit", "files")
}

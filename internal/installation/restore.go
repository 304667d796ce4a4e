package installation

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/durable"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// Folders in a data folder during a restore. The folder restoring can be incomplete; the folder restored is complete.
const (
	restoring = "restoring"
	restored  = "restored"
)

// lostFound is the folder that the file system keeps at the root of an ext4 mount.
const lostFound = "lost+found"

// besides are the folders that a data folder can have before a restore into it: backups do not have them.
var besides = []string{"images", datadir.Embedded, restoring, lostFound}

// RestoreOptions are the options of Restore.
type RestoreOptions struct {
	// Database begins to restore the database of a backup with the given id; nil if there is no database to restore to.
	Database func(ctx context.Context, key *secret.Key, id string) (*store.Restore, error)
	// WithoutDatabase leaves the database of the backup out.
	WithoutDatabase bool
	// Adapt, if not nil, changes the restored folder of a server that shares a database, before the folder counts as complete.
	Adapt func(server string) error
}

// Restore puts a backup into an empty data folder, which it creates if it is missing, and into an empty database. After an error no part of
// the backup is in either of them, and a folder that was missing is missing again. key is nil for the key in the backup.
func Restore(ctx context.Context, file string, key *secret.Key, data datadir.Folder, opt RestoreOptions) (m Manifest, err error) {
	f, err := openFile(file)
	if err != nil {
		return m, err
	}
	defer f.Close()
	sealed, err := open(f, key)
	if err != nil {
		return m, err
	}
	remove, err := createFolder(data)
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	unlock, err := lock(data)
	if err != nil {
		return m, err
	}
	defer unlock()
	if _, err := os.Lstat(data.Path(restored)); err == nil {
		if err := moveUp(data); err != nil {
			return m, err
		}
		return m, hutch.Errorf(hutch.Conflict, "an earlier restore into %s was interrupted at its end, and is complete now: start the server, or choose another folder for this backup", data)
	}
	if err := checkEmpty(data); err != nil {
		return m, err
	}
	if err := errors.Join(os.RemoveAll(data.Path(restoring)), os.Mkdir(data.Path(restoring), 0o711)); err != nil {
		return m, err
	}
	database := &databaseRestore{key: sealed.key, opt: opt}
	defer database.close()
	err = sealed.read(func(r io.Reader) (err error) {
		m, err = extract(ctx, r, data.Path(restoring), database)
		return err
	})
	if err == nil {
		err = prepare(ctx, data, m, sealed.key, database)
	}
	if durable.IsFull(err, string(data)) {
		err = hutch.Errorf(hutch.Exhausted, "the disk of %s is full, and the backup needs %s there: make room on it, or choose a folder on another disk with --data", data, atMost(m.Bytes)).Because(err)
	}
	if err != nil {
		return m, errors.Join(err, os.RemoveAll(data.Path(restoring)))
	}
	return m, moveUp(data)
}

// Verify reads a whole backup, and returns what is in it. The backup is opened with key. If key is nil, it is opened
// with the key that it contains, or, if it contains none, with found, which can be nil.
func Verify(ctx context.Context, file string, key, found *secret.Key) (m Manifest, err error) {
	f, err := openFile(file)
	if err != nil {
		return m, err
	}
	defer f.Close()
	sealed, err := open(f, key)
	if errors.Is(err, errNoKey) {
		if _, err = f.Seek(0, io.SeekStart); err == nil && found != nil {
			sealed, err = open(f, found)
		}
		if sealed == nil {
			err = errNoKeyToVerify.Because(err)
		}
	}
	if err != nil {
		return m, err
	}
	err = sealed.read(func(r io.Reader) (err error) {
		m, err = extract(ctx, r, "", &databaseRestore{opt: RestoreOptions{WithoutDatabase: true}})
		return err
	})
	return m, err
}

// createFolder creates a data folder, and the folders above it that are missing. The returned function removes the created folders that are
// empty.
func createFolder(data datadir.Folder) (remove func(), err error) {
	var missing []string
	for dir := string(data); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	remove = func() {
		for _, dir := range missing {
			if os.Remove(dir) != nil { // it is not empty
				return
			}
		}
	}
	if _, err := datadir.Open(string(data)); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

func openFile(file string) (*os.File, error) {
	if file == "" {
		return nil, errNoName
	}
	f, err := os.Open(file)
	if err != nil {
		err = hutch.Errorf(hutch.NotFound, "the backup %s cannot be read: %s", file, errors.Unwrap(err)).Because(err)
	}
	return f, err
}

// lock prevents another restore into a data folder.
func lock(data datadir.Folder) (unlock func(), err error) {
	dir, err := os.Open(string(data))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, hutch.Errorf(hutch.Conflict, "a backup is being restored to the data folder %s: wait until that is done", data)
	}
	return func() {
		// Closing is not enough to unlock: a child that is just being forked has the descriptor, too, until it executes its program.
		unix.Flock(int(dir.Fd()), unix.LOCK_UN)
		dir.Close()
	}, nil
}

func checkEmpty(data datadir.Folder) error {
	entries, err := os.ReadDir(string(data))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(besides, e.Name()) {
			return hutch.Errorf(hutch.Conflict, "the data folder %s is in use, it has %s: a backup is restored only to an empty one, so choose another with --data, or move this one away", data, e.Name())
		}
	}
	return nil
}

// mostManifest limits the size of a manifest, which names sandboxes and files.
const mostManifest = 256 << 20

// extract reads an archive. It writes the data folder from it to dir, unless dir is "", and the database to database.
func extract(ctx context.Context, r io.Reader, dir string, database *databaseRestore) (m Manifest, err error) {
	var root *os.Root
	if dir != "" {
		if root, err = os.OpenRoot(dir); err != nil {
			return m, err
		}
		defer root.Close()
	}
	in := tar.NewReader(r)
	m, text, err := readManifest(in)
	switch {
	case err != nil:
	case m.Database != nil:
		err = database.read(ctx, in, text, m.Database)
	case m.Node != "" && database.opt.Database != nil && !database.opt.WithoutDatabase:
		err = errHasNoDatabase
	}
	if err != nil {
		return m, err
	}
	for ctx.Err() == nil {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err == nil && root != nil {
			err = extractOne(root, h, in)
		}
		if err != nil {
			return m, err
		}
	}
	return m, context.Cause(ctx)
}

// readManifest reads the first entry of an archive, and returns its text, too.
func readManifest(in *tar.Reader) (m Manifest, text []byte, err error) {
	h, err := in.Next()
	if err != nil {
		return m, nil, err
	}
	if h.Name != manifestEntry || h.Size > mostManifest {
		return m, nil, ErrDamaged
	}
	if text, err = io.ReadAll(in); err == nil && json.Unmarshal(text, &m) != nil {
		err = ErrDamaged
	}
	return m, text, err
}

func extractOne(root *os.Root, h *tar.Header, in io.Reader) error {
	name, ours := strings.CutPrefix(h.Name, dataFolder)
	name = filepath.Clean(name)
	mode := fs.FileMode(h.Mode).Perm()
	switch {
	case !ours || !filepath.IsLocal(name):
		return ErrDamaged
	case h.Typeflag == tar.TypeDir:
		if err := root.MkdirAll(name, mode); err != nil {
			return err
		}
		return root.Chmod(name, mode)
	case h.Typeflag != tar.TypeReg:
		return ErrDamaged
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n, err := durable.CopySparse(f, in)
	if err == nil && n != h.Size {
		err = ErrDamaged
	}
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil || h.ModTime.Unix() <= 0 {
		return err
	}
	return root.Chtimes(name, h.ModTime, h.ModTime)
}

// prepare completes the folder of a restore, syncs it, commits the database, and then renames the folder to restored. For this order see the
// comment of the package.
func prepare(ctx context.Context, data datadir.Folder, m Manifest, key *secret.Key, database *databaseRestore) error {
	half := data.Path(restoring)
	for _, name := range []string{datadir.Server, datadir.Conversation} {
		dir := filepath.Join(half, name)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := os.WriteFile(datadir.Restored(dir), []byte(m.Data+"\n"), 0o600); err != nil {
			return err
		}
	}
	if m.WithKey {
		if err := keepKey(half, key); err != nil {
			return err
		}
	}
	if adapt := database.opt.Adapt; adapt != nil && m.Node != "" {
		if err := adapt(filepath.Join(half, datadir.Server)); err != nil {
			return err
		}
	}
	if err := giveTo(data, half); err != nil {
		return err
	}
	d, err := os.Open(string(data))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("write the restored files to the disk: %w", err)
	}
	if err := database.commit(ctx); err != nil {
		return err
	}
	return errors.Join(os.Rename(half, data.Path(restored)), d.Sync())
}

// keepKey writes the key to the file where the server looks for it, if the backup does not have that file.
func keepKey(half string, key *secret.Key) error {
	for _, name := range []string{datadir.Server, datadir.Conversation} {
		dir := filepath.Join(half, name)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		path := filepath.Join(dir, datadir.SecretsKey)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return os.WriteFile(path, []byte(secret.Reveal(key)+"\n"), 0o600)
		}
		return nil
	}
	return nil
}

// giveTo makes the owner of the data folder the owner of everything in dir, if this process is root.
func giveTo(data datadir.Folder, dir string) error {
	info, err := os.Stat(string(data))
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}

// moveUp moves the restored files to their final folder. It can be repeated.
func moveUp(data datadir.Folder) error {
	entries, err := os.ReadDir(data.Path(restored))
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(data.Path(restored), e.Name()), data.Path(e.Name())
		if e.Name() == lostFound { // an older version backed it up
			if err := os.RemoveAll(from); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return hutch.Errorf(hutch.Conflict, "%s came to be while a backup was restored: move it away, and try again", to)
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(data.Path(restored)), durable.Sync(string(data)))
}

// Finish completes a restore that was interrupted when all files were written but not yet moved to their final folder.
// If the restore was interrupted before that, Finish removes what is left of it. It is called before a server uses the
// folder.
func Finish(data datadir.Folder) error {
	there := func(name string) bool { _, err := os.Lstat(data.Path(name)); return err == nil }
	if !there(restoring) && !there(restored) {
		return nil
	}
	unlock, err := lock(data)
	if err != nil {
		return err
	}
	defer unlock()
	if there(restored) {
		if err := moveUp(data); err != nil {
			return err
		}
	}
	return os.RemoveAll(data.Path(restoring))
}

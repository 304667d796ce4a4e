package installation

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/durable"
	"hutch/internal/secret"
	"hutch/internal/store"
	"hutch/internal/tarfile"
)

// Options are the options of Write. To and Key are required.
type Options struct {
	To      string      // the file to write
	Key     *secret.Key // of the installation
	WithKey bool        // puts the key into the backup
	Version string      // of Hutch

	// Database is the shared database, if the server uses one; nil if it cannot be read. The caller closes it.
	Database *store.Backup
	// WithoutDatabase leaves the database out. If it can be read, its records still decide which files are in the backup.
	WithoutDatabase bool
}

var errDatabaseNeeded = hutch.Errorf(hutch.Invalid, "the state of this server is in a PostgreSQL database, which belongs to the backup: give its URL with --store or in HUTCH_STORE, or leave it out with --no-database")

// partSuffix is added to the name of a backup until the backup is complete.
const partSuffix = ".part"

// Write writes a backup of a data folder. The server of the folder can run meanwhile.
func Write(ctx context.Context, data datadir.Folder, opt Options) (m Manifest, err error) {
	if err := CheckTarget(data, opt.To); err != nil {
		return m, err
	}
	g := backupContent{data: data, open: map[string]*os.File{}, dump: store.Dump, database: opt.Database, withDatabase: !opt.WithoutDatabase}
	defer g.close()
	if err := g.gather(ctx); err != nil {
		return m, err
	}
	m = g.manifest
	m.Created, m.Version, m.Data, m.WithKey = time.Now().UTC(), opt.Version, string(data), opt.WithKey
	h := header{Created: m.Created, Key: nameOf(opt.Key)}
	if opt.WithKey {
		h.Secret = secret.Reveal(opt.Key)
	}
	format := formatFolder
	if m.Database != nil {
		format = formatDatabase
	}
	err = writeWhole(opt.To, func(f *os.File) error {
		return seal(f, format, h, opt.Key, func(w io.Writer) error { return g.archive(ctx, w, &m) })
	})
	if dir := filepath.Dir(opt.To); durable.IsFull(err, dir) {
		err = hutch.Errorf(hutch.Exhausted, "the disk of %s is full, and the backup needs %s there: make room on it, or write the backup to another disk", dir, atMost(m.Bytes)).Because(err)
	}
	return m, err
}

// atMost returns a text for the most space that the files in a backup need. Compression and holes reduce it.
func atMost(bytes int64) string { return fmt.Sprintf("up to %d MiB", (bytes+1<<20-1)>>20) }

// CheckTarget refuses a file to which Write would not write a backup of a data folder.
func CheckTarget(data datadir.Folder, to string) error {
	if to == "" {
		return errNoName
	}
	path, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(string(data), path); err == nil && filepath.IsLocal(rel) {
		return hutch.Errorf(hutch.Invalid, "%s is in the data folder: write the backup to another disk, or at least to another folder", to)
	}
	if err := checkFolder(filepath.Dir(path)); err != nil {
		return notWritable(to).Because(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return isThere(to)
	}
	return nil
}

// checkFolder returns an error if this process cannot create files in a folder.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return unix.ENOTDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

var errNoName = hutch.Errorf(hutch.Invalid, "the name of the backup file is missing: give one, such as /mnt/backups/hutch-monday")

func notWritable(path string) *hutch.Error {
	return hutch.Errorf(hutch.Invalid, "the backup cannot be written to %s: choose a folder that is there and that you can write to", path)
}

func isThere(path string) error {
	return hutch.Errorf(hutch.Conflict, "%s is there already: choose another name, or remove it first", path)
}

// writeWhole writes a file under another name, and then renames it. What an interrupted write leaves is overwritten by
// the next write.
func writeWhole(path string, fill func(*os.File) error) error {
	f, err := os.OpenFile(path+partSuffix, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return notWritable(path).Because(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return hutch.Errorf(hutch.Conflict, "another backup is being written to %s", path)
	}
	// Another backup can have renamed or removed the file before it was locked here.
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(f.Name()); err != nil || !os.SameFile(info, now) {
		return hutch.Errorf(hutch.Conflict, "another backup was just written to %s", path)
	}
	if err = errors.Join(f.Chmod(0o600), f.Truncate(0)); err == nil {
		err = fill(f)
	}
	if err = errors.Join(err, f.Sync()); err == nil {
		if _, err = os.Lstat(path); err == nil {
			err = isThere(path)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return errors.Join(os.Rename(f.Name(), path), durable.Sync(filepath.Dir(path)))
}

// left are the parts of a data folder that are not backed up, because they can be made again or belong to a running process.
var left = []string{
	"images", datadir.Embedded, restoring, restored, lostFound, "oci/tmp", "oci/partial",
}

// leftOfServer are the parts of the folder of a server that are not backed up. Its store is not among the copied files:
// it is copied separately.
var leftOfServer = []string{
	"lock", "address", "trash", "gvisor", "native", "docker", "kubernetes", "hutch.db", "hutch.db-wal", "hutch.db-shm", "hutch.db.moved", "restored",
}

// backupContent is the content of a backup: files that are open, and the stores.
type backupContent struct {
	data     datadir.Folder
	folders  []string
	open     map[string]*os.File // by path below the data folder
	later    map[string]int64    // sizes of the files that are opened when they are copied, by path below the data folder
	stores   map[string][]byte   // by path below the data folder
	manifest Manifest
	database *store.Backup // the shared database, if the server uses one, as it was at the last reading
	// withDatabase is true if a database belongs to the backup.
	withDatabase bool
	dump         func(ctx context.Context, path string) (records []store.Record, image []byte, err error) // store.Dump, except in tests
}

func (g *backupContent) close() {
	for _, f := range g.open {
		f.Close()
	}
}

func (g *backupContent) gather(ctx context.Context) error {
	g.later, g.stores, g.manifest.Awake = map[string]int64{}, map[string][]byte{}, []string{}
	var servers []*server
	for _, name := range []string{datadir.Server, datadir.Conversation} {
		s, err := g.server(ctx, name)
		if err != nil {
			return err
		}
		if s != nil {
			servers = append(servers, s)
		}
	}
	if len(servers) == 0 {
		return hutch.Errorf(hutch.NotFound, "no server has run with the data folder %s: there is nothing to back up", g.data)
	}
	if err := g.walk("."); err != nil {
		return err
	}
	if err := g.steadyAll(ctx); err != nil {
		return err
	}
	for _, s := range servers {
		if err := s.settle(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// walk opens all files of a folder, below the data folder.
func (g *backupContent) walk(name string) error {
	return g.walkUnless(name, func(string) bool { return false })
}

// walkNew opens the files of a folder that the backup does not have yet, except those to skip.
func (g *backupContent) walkNew(name string, skip func(rel string) bool) error {
	has := map[string]bool{}
	for _, rel := range slices.Concat(g.folders, g.manifest.Skipped, slices.Collect(maps.Keys(g.open))) {
		has[rel] = true
	}
	return g.walkUnless(name, func(rel string) bool { return has[rel] || skip(rel) })
}

func (g *backupContent) walkUnless(name string, skip func(rel string) bool) error {
	err := g.each(name, func(rel string, e fs.DirEntry) error {
		switch {
		case skip(rel):
			return nil
		case e.IsDir():
			g.folders = append(g.folders, rel)
			return nil
		case !e.Type().IsRegular():
			g.manifest.Skipped = append(g.manifest.Skipped, rel)
			return nil
		case isIn(rel, datadir.Conversations):
			return g.addLater(rel, e)
		}
		return g.add(rel)
	})
	if errors.Is(err, unix.EMFILE) {
		err = hutch.Errorf(hutch.Exhausted, "the data folder has more files than a process can open here: raise the limit with `ulimit -n 1000000`, and try again").Because(err)
	}
	return err
}

// each calls do for a file, or for everything in a folder that is to be backed up, with the path below the data folder.
func (g *backupContent) each(name string, do func(rel string, e fs.DirEntry) error) error {
	return filepath.WalkDir(g.data.Path(name), func(path string, e fs.DirEntry, err error) error {
		rel, failed := filepath.Rel(string(g.data), path)
		switch {
		case failed == nil && (leftOut(rel) || isHalf(rel)): // even if it cannot be read
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case errors.Is(err, fs.ErrNotExist): // the file is gone by now
			return nil
		case err != nil || failed != nil:
			return errors.Join(err, failed)
		case rel == ".":
			return nil
		}
		return do(rel, e)
	})
}

// leftOut reports whether a path below the data folder is not backed up.
func leftOut(rel string) bool {
	if slices.Contains(left, rel) {
		return true
	}
	server, in, _ := strings.Cut(rel, "/")
	return (server == datadir.Server || server == datadir.Conversation) && slices.Contains(leftOfServer, in)
}

func (g *backupContent) add(rel string) error {
	f, err := os.OpenFile(g.data.Path(rel), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if old := g.open[rel]; old != nil {
			old.Close()
		}
		g.open[rel] = f
	}
	return err
}

// addLater adds a file of a conversation, which is opened only when it is copied. Programs decide how many such files exist, and
// that can be more than a process can open. Each of these files is complete, and independent of the others.
func (g *backupContent) addLater(rel string, e fs.DirEntry) error {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		g.later[rel] = info.Size()
	}
	return err
}

// isIn reports whether a path is another one, or below it.
func isIn(name, rel string) bool { return name == rel || strings.HasPrefix(name, rel+"/") }

// drop removes a file or a folder from the backup.
func (g *backupContent) drop(rel string) {
	for name, f := range g.open {
		if isIn(name, rel) {
			f.Close()
			delete(g.open, name)
		}
	}
	in := func(name string) bool { return isIn(name, rel) }
	g.folders = slices.DeleteFunc(g.folders, in)
	g.manifest.Skipped = slices.DeleteFunc(g.manifest.Skipped, in)
}

// archive writes everything, and counts it.
func (g *backupContent) archive(ctx context.Context, w io.Writer, m *Manifest) error {
	m.Files = len(g.open) + len(g.later) + len(g.stores)
	for _, size := range g.later {
		m.Bytes += size
	}
	for _, image := range g.stores {
		m.Bytes += int64(len(image))
	}
	for _, f := range g.open {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		m.Bytes += info.Size()
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	if err := put(out, manifestEntry, text); err != nil {
		return err
	}
	if m.Database != nil {
		if err := putDatabase(ctx, out, g.database, m.Database); err != nil {
			return err
		}
	}
	for _, rel := range g.folders {
		if err := g.putFolder(out, rel); err != nil {
			return err
		}
	}
	for rel, image := range g.stores {
		if err := put(out, dataFolder+rel, image); err != nil {
			return err
		}
	}
	for rel, f := range g.open {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := putFile(out, rel, f); err != nil {
			return fmt.Errorf("back up %s: %w", rel, err)
		}
	}
	for rel := range g.later {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := g.putLater(out, rel); err != nil {
			return fmt.Errorf("back up %s: %w", rel, err)
		}
	}
	return out.Close()
}

// putLater writes a file that is not open yet. A file that is gone by now is left out.
func (g *backupContent) putLater(out *tar.Writer, rel string) error {
	f, err := os.OpenFile(g.data.Path(rel), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return putFile(out, rel, f)
}

func put(out *tar.Writer, name string, content []byte) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

func (g *backupContent) putFolder(out *tar.Writer, rel string) error {
	info, err := os.Lstat(g.data.Path(rel))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dataFolder + rel + "/", Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX})
}

// putFile writes a file, to which the server can append meanwhile.
func putFile(out *tar.Writer, rel string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	err = tarfile.Add(out, f, tar.Header{Name: dataFolder + rel, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = hutch.Errorf(hutch.Unavailable, "it became shorter while it was read: try again")
	}
	return err
}

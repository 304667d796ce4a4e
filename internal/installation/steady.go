package installation

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hutch/internal/datadir"
)

// units are the patterns of folders of one owner whose files belong together: one file of such a folder names the others.
var units = inEachServer("snapshots/*", "volumes/*/*", "memory/*", checkpoints+"/*")

// recordTries is how many times a record of a catalog is opened again at most.
const recordTries = 10

// catalogs are folders of all owners, with the pattern of their records. A record names other files of its folder.
// These files are created before the record and removed after it, and their content never changes.
var catalogs = map[string]string{
	"oci":                             "records/*.json",
	datadir.Server + "/backups":       "*/*.json",
	datadir.Conversation + "/backups": "*/*.json",
}

// inEachServer returns the patterns in the folders of the server and of `hutch conversation`.
func inEachServer(patterns ...string) (all []string) {
	for _, server := range []string{datadir.Server, datadir.Conversation} {
		for _, pattern := range patterns {
			all = append(all, server+"/"+pattern)
		}
	}
	return all
}

// isHalf reports whether a path belongs to something that is not complete: a snapshot that is being made or deleted, programs that are
// being copied, the backup of a folder that is being written, or memory that is being saved or copied.
func isHalf(rel string) bool {
	parts := strings.Split(rel, "/")
	if len(parts) < 3 || parts[0] != datadir.Server && parts[0] != datadir.Conversation {
		return false
	}
	return (parts[1] == "snapshots" || parts[1] == "builds") && strings.HasPrefix(parts[2], ".") ||
		parts[1] == "backups" && strings.HasSuffix(rel, ".new") ||
		(parts[1] == "memory" || parts[1] == checkpoints) && (strings.HasSuffix(parts[2], ".new") || strings.HasSuffix(parts[2], ".copy"))
}

// steadyAll makes sure that the backup has the files of each unit as they were at one moment, and that each record of a
// catalog comes with the files that it names.
func (g *backupContent) steadyAll(ctx context.Context) error {
	for folder, records := range catalogs {
		if err := g.completeRecords(ctx, folder, records); err != nil {
			return err
		}
	}
	for _, pattern := range units {
		paths, err := filepath.Glob(g.data.Path(pattern))
		if err != nil {
			return err
		}
		all := map[string]bool{} // the units that exist, and the units that were opened and no longer exist
		for _, path := range paths {
			info, err := os.Lstat(path)
			if rel, failed := filepath.Rel(string(g.data), path); err == nil && failed == nil && info.IsDir() {
				all[rel] = true
			}
		}
		for _, rel := range g.folders {
			if ok, _ := filepath.Match(pattern, rel); ok {
				all[rel] = true
			}
		}
		for rel := range all {
			if err := g.steady(ctx, rel); err != nil {
				return err
			}
		}
	}
	return nil
}

// completeRecords adds the files that the records of a catalog name. If a record still exists after all other files were
// opened, then all files that it names are open. First completeRecords tries to open all records as of one moment. If
// they change too often for that, it treats each record separately. It leaves out records that change all the time.
func (g *backupContent) completeRecords(ctx context.Context, folder, records string) error {
	isRecord := func(rel string) bool {
		ok, _ := filepath.Match(folder+"/"+records, rel)
		return ok
	}
	all := slices.DeleteFunc(slices.Collect(maps.Keys(g.open)), func(rel string) bool { return !isRecord(rel) })
	check := all
	var changed []string
	for try := range recordTries {
		if err := g.walkNew(folder, isRecord); err != nil {
			return err
		}
		var err error
		if changed, err = g.reopenChanged(check); err != nil || len(changed) == 0 {
			return err
		}
		if check = all; try >= recordTries/2 {
			check = changed
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	g.leaveOut(changed...)
	return nil
}

// reopenChanged opens replaced files again, and returns their paths. It drops files that are gone.
func (g *backupContent) reopenChanged(paths []string) (changed []string, err error) {
	for _, rel := range paths {
		if g.open[rel] == nil {
			continue
		}
		same, err := g.isSame(rel)
		if err == nil && !same {
			g.drop(rel)
			err = g.walk(rel)
		}
		if err != nil {
			return nil, err
		}
		if !same && g.open[rel] != nil {
			changed = append(changed, rel)
		}
	}
	return changed, nil
}

// leaveOut removes files or folders from the backup because they changed whenever they were read.
func (g *backupContent) leaveOut(paths ...string) {
	for _, rel := range paths {
		g.drop(rel)
	}
	g.manifest.Changing = append(g.manifest.Changing, paths...)
}

// isSame reports whether the path of an open file still leads to that file.
func (g *backupContent) isSame(rel string) (bool, error) {
	is, err := g.open[rel].Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(g.data.Path(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(is, now), err
}

// steady opens the files of a unit, and opens them all again if the unit has changed meanwhile. When it returns, the
// open files are exactly the files that the unit had when the last of them was opened. It leaves out a unit that
// changes all the time.
func (g *backupContent) steady(ctx context.Context, unit string) error {
	for range settleTries {
		same, err := g.isSteady(unit)
		if same || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g.drop(unit)
		if err := g.walk(unit); err != nil {
			return err
		}
	}
	g.leaveOut(unit)
	return nil
}

func (g *backupContent) isSteady(unit string) (bool, error) {
	there := map[string]fs.FileInfo{}
	err := g.each(unit, func(rel string, e fs.DirEntry) error {
		if !e.Type().IsRegular() {
			return nil
		}
		info, err := os.Lstat(g.data.Path(rel))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		there[rel] = info
		return err
	})
	if err != nil {
		return false, err
	}
	opened := 0
	for rel, f := range g.open {
		if !strings.HasPrefix(rel, unit+"/") {
			continue
		}
		opened++
		is, err := f.Stat()
		if err != nil {
			return false, err
		}
		if now := there[rel]; now == nil || !os.SameFile(is, now) {
			return false, nil
		}
	}
	return opened == len(there), nil
}

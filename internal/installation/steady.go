package installation

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hutch"
	"hutch/internal/datadir"
)

// units are folders, as patterns, whose files belong together: one of them names the others.
var units = append([]string{"oci"}, inEachServer("backups", "snapshots/*", "volumes/*/*", "memory/*", checkpoints+"/*")...)

// inEachServer returns the patterns in the folders of the server and of `hutch conversation`.
func inEachServer(patterns ...string) (all []string) {
	for _, server := range []string{datadir.Server, datadir.Conversation} {
		for _, pattern := range patterns {
			all = append(all, server+"/"+pattern)
		}
	}
	return all
}

// isHalf reports whether a path belongs to a snapshot that is being made or deleted, or to memory that is being saved or copied.
func isHalf(rel string) bool {
	parts := strings.Split(rel, "/")
	if len(parts) < 3 || parts[0] != datadir.Server && parts[0] != datadir.Conversation {
		return false
	}
	return parts[1] == "snapshots" && strings.HasPrefix(parts[2], ".") ||
		(parts[1] == "memory" || parts[1] == checkpoints) && (strings.HasSuffix(parts[2], ".new") || strings.HasSuffix(parts[2], ".copy"))
}

// steadyAll makes the files of each unit those of one moment.
func (g *backupContent) steadyAll(ctx context.Context) error {
	for _, pattern := range units {
		paths, err := filepath.Glob(g.data.Path(pattern))
		if err != nil {
			return err
		}
		all := map[string]bool{} // the units that are there, and those that were opened and are gone
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

// steady opens the files of a unit again until those that are open are all there, and no others, after the last one was opened.
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
	return hutch.Errorf(hutch.Unavailable, "%s changes all the time: try again when there is less to do", g.data.Path(unit))
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

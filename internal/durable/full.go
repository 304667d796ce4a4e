package durable

import (
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"hutch"
)

// Full is what people are told when the disk has no room for the server's files.
var Full = hutch.Errorf(hutch.Exhausted, "the server's disk is full: delete snapshots, backups or sandboxes, or make room where its data folder is, and try again").With("limit", "disk of the server")

// Explained is err or, if that came of a disk without room, which may be that of
// dir, Full because of it. An error that has told a person more stays.
func Explained(err error, dir string) error {
	if err == nil || tells(err) || !noRoom(err) && !isFull(dir) {
		return err
	}
	return Full.Because(err)
}

// tells reports whether err says more than that something did not work.
func tells(err error) bool {
	return !slices.Contains([]hutch.Kind{hutch.Internal, hutch.Unavailable, hutch.Timeout}, hutch.KindOf(err))
}

// noRoom goes by files: of name spaces and control groups, too, the kernel says
// that there is no space left.
func noRoom(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Err == unix.ENOSPC
}

// isFull reports whether there is no room on the disk of a folder, for those who
// could tell no more than that they failed.
func isFull(dir string) bool {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return false
	}
	return disk.Bavail*uint64(disk.Bsize) < 1<<20 || disk.Files > 0 && disk.Ffree == 0
}

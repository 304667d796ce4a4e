package durable

import (
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"hutch"
)

// Full is the error when the disk has no space for the server's files.
var Full = hutch.Errorf(hutch.Exhausted, "the server's disk is full: delete snapshots, backups or sandboxes, or make room where its data folder is, and try again").With("limit", "disk of the server")

// Explained returns err. If err came from a disk without space, possibly that of dir, it returns Full with err as its
// cause. An error with a more precise message is kept.
func Explained(err error, dir string) error {
	if !IsFull(err, dir) {
		return err
	}
	return Full.Because(err)
}

// IsFull reports whether err came from a disk without space, possibly that of dir, and has no more precise message. It
// is for files that are not on the server's disk; for files on it, use Explained.
func IsFull(err error, dir string) bool {
	return err != nil && !isSpecific(err) && (noRoom(err) || isFull(dir))
}

// isSpecific reports whether err says more than "it failed".
func isSpecific(err error) bool {
	return !slices.Contains([]hutch.Kind{hutch.Internal, hutch.Unavailable, hutch.Timeout}, hutch.KindOf(err))
}

// noRoom reports whether err says that there is no space for a file. Other errors do not count, because the kernel also
// reports "no space left" for namespaces and control groups.
func noRoom(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Err == unix.ENOSPC
}

// isFull reports whether the disk of a folder has no space, for errors that do not say so themselves.
func isFull(dir string) bool {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return false
	}
	return disk.Bavail*uint64(disk.Bsize) < 1<<20 || disk.Files > 0 && disk.Ffree == 0
}

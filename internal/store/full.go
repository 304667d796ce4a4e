package store

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"hutch"
)

// explained is err, in words for a person when it is that the disk is full.
func explained(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code() != sqlite3.SQLITE_FULL && e.Code() != sqlite3.SQLITE_IOERR_SHMSIZE {
		return err
	}
	return hutch.Errorf(hutch.Exhausted, "the server's disk is full: make room where its data folder is, and try again").Because(err).With("limit", "disk of the server")
}

package store

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"hutch/internal/durable"
)

// explained is err, in words for a person when it is that the disk is full.
func explained(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code() != sqlite3.SQLITE_FULL && e.Code() != sqlite3.SQLITE_IOERR_SHMSIZE {
		return err
	}
	return durable.Full.Because(err)
}

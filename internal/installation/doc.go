// Package installation backs up the data folder of a server with its database, and restores both on another machine.
//
// A backup is one file: a line that names the format, a line of JSON (the header), and a tar archive. The archive is compressed, encrypted
// and authenticated with a key that is derived from the installation's secret key (see [travel.Seal]). The header is authenticated, too. So a
// backup that was cut off or changed, or that belongs to another key, is refused. Without the key, a backup reveals only when it was made.
// The header has the secret key if the caller has asked for that.
//
// # A consistent copy of a running server
//
// A server replaces its files as a whole, or appends to them. [Write] therefore opens all of them first, which takes little time, and copies
// them afterwards: an open file stays as it is when the server replaces or removes it. Files that belong together, such as those of a
// volume, are opened again and again, until the open files are exactly those that exist when the last one is opened. Sandboxes need more,
// because a sandbox is a record in the store and files beside it. Write reads the store before and after it opens the files. The files of a
// sandbox that slept both times, with the same record, belong to that record. The files of other sleeping sandboxes are opened again, until
// nothing has changed. The store in the backup is the one that was read last. Files of conversations are opened when they are copied: there
// can be millions of them, and each is complete by itself.
//
// A part that changes whenever it is read is left out, and the manifest names it. Otherwise one owner could make every backup fail. Parts
// are sandboxes, volumes, records of images and records of backups of folders.
//
// The files of a sandbox that is awake are in its instance. While a backup is made, the server has copies of such sandboxes in the folder
// "checkpoints" ([hutch.Checkpoints]). The copies are in the backup as the files of sleeping sandboxes, but the records still say that the
// sandboxes are awake. The restored server finds no instance of such a sandbox, and continues it from the copy. Without a copy, the restored
// server reports that the sandbox is lost.
//
// # A database that servers share
//
// If the state is in PostgreSQL, the records are read from there, each time in a new transaction that sees the database at one moment. All
// tables in the backup come from the last of these transactions, in which the records fit the files of sandboxes. So the moment of the
// database is after that of the data folder. What was acknowledged before the backup began is in both. The opposite order would lose
// sandboxes silently: files without a record are removed at the next start, while a record without files is reported as a lost sandbox.
//
// The tables are copied by COPY in text form, as pieces of a limited size, so neither a backup nor a restore has a table in memory. A restore
// creates the tables with the migrations of this program, as they were at the backup's format, fills them, and brings them to the present
// format. The names of tables and columns in its statements are those of this program: the names in a backup only choose among them.
//
// The backup of one node has the whole database, because half of it cannot be restored, and the data folder of this node only. Options leave
// the database out for the other nodes of a fleet.
//
// # A restore is complete or has no effect
//
// [Restore] writes to the folder "restoring" in the data folder. When all of it was read, verified and written to the disk, that folder becomes
// "restored", and then its content moves up. [Finish] continues after an interruption: a server calls it when it starts.
//
// The database is filled in one transaction, which is committed just before the folder becomes "restored". A process that is killed before
// that leaves an empty database. A process that is killed between these two steps leaves an empty folder, and a database that names the
// backup in the table hutch.restored. The same restore can then be repeated, and only fills the folder. The first server that opens the
// database removes that table.
package installation

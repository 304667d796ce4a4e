// Package installation backs up the data folder of a server, and restores it on another machine.
//
// A backup is one file: a line that names the format, a line of JSON, which is the header, and a tar archive that is compressed, encrypted
// and authenticated with a key that is derived from the installation's secret key (see [travel.Seal]). The header is authenticated, too. So a
// backup that was cut off or changed, or that belongs to another key, is refused, and without the key it says only when it was made. The header
// has the secret key if the caller has asked for that.
//
// # A consistent copy of a running server
//
// A server replaces its files as a whole, or appends to them. [Write] therefore opens all of them first, which takes little time, and copies
// them afterwards: an open file stays as it is when the server replaces or removes it. Files that
// belong together, such as those of a volume, are opened again until those that were opened are all there, and no others, when the last one is
// open. Sandboxes need more, because a sandbox is a record
// in the store and files beside it. Write reads the store before and after it opens the files. The files of a sandbox that slept both
// times, with the same record, belong to that record. The files of other sleeping sandboxes are opened again, until nothing has changed. The
// store in the backup is the one that was read last. Files of conversations are opened when they are copied: there can be millions of them, and
// each is complete by itself.
//
// What changes whenever it is read is left out, each part for itself, and named in the manifest: otherwise one owner could make every backup
// fail. Parts are sandboxes, volumes, records of images and records of backups of folders.
//
// The files of a sandbox that is awake are in its instance. While a backup is made, the server has copies of such sandboxes in the folder
// "checkpoints" ([hutch.Checkpoints]), and they are in the backup as the files of sleeping sandboxes. The record is that of a sandbox that is
// awake: the restored server finds no instance, and lets it continue from the copy. Without a copy, the restored server says that the sandbox
// is lost.
//
// # A restore is complete or has no effect
//
// [Restore] writes to the folder "restoring" in the data folder. When all of it was read, verified and written to the disk, that folder becomes
// "restored", and then its content moves up. [Finish] continues after an interruption: a server calls it when it starts.
package installation

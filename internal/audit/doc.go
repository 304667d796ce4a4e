// Package audit keeps the record of who did what: one line of JSON for each
// operation, in files that are only ever appended to.
//
// Every line carries the hash of the line before it, so that one that was
// changed, taken out or moved is found by whoever reads the file with a SHA-256
// at hand. And a line is written, by one write(2), before the answer goes out:
// what a client was told is on record, also after a kill -9 of the daemon.
//
// # Lines
//
//	{"seq":7,"prev":"HASH","phase":"end","began":6,…,"hash":"HASH"}
//
// seq counts lines over all files, from 1. hash is the SHA-256, in hexadecimal,
// of the line up to and without `,"hash"`; prev is the hash of the line before,
// and 64 zeros in the first. An operation that changes or runs something has a
// line when it begins, and one when it ends that names the first by its number;
// another has a line of phase "end" alone. A line of phase "mark" is the log's
// own, of one of the verbs that are listed at [AuditStart].
//
// # Files
//
//	2026-11-21.jsonl          the lines written on that day, UTC
//	2026-11-21.jsonl.torn-42  bytes found behind the last whole line, set aside
//	checkpoint                the last line known to be on disk
//
// Files are removed when the log has kept them for long enough. A mark says
// which line was the last to go, and so is where the rest of the chain hangs.
package audit

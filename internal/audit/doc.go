// Package audit records who did what: one line of JSON for each operation, in
// files that are only ever appended to.
//
// Every line contains the hash of the line before it, so anyone with the file and a SHA-256 program can find a line
// that was changed, removed or moved. A line is written, with one write(2), before the answer is sent. So every call
// that was answered is on record, even after a kill -9 of the daemon.
//
// # Lines
//
//	{"seq":7,"prev":"HASH","phase":"end","began":6,…,"hash":"HASH"}
//
// seq counts lines over all files, from 1. hash is the SHA-256, in hexadecimal, of the line up to and without
// `,"hash"`; prev is the hash of the line before. In the first line it is 64 zeros. An operation that changes or runs
// something has a line when it begins and another when it ends. The second line contains the number of the first. Other
// operations have only a line of phase "end". A line of phase "mark" is written by the log itself, with one of the
// verbs that are listed at [AuditStart].
//
// # Files
//
//	2026-11-21.jsonl          the lines written on that day, UTC
//	2026-11-21.jsonl.torn-42  bytes after the last whole line, set aside
//	checkpoint                the last line known to be on disk
//
// Files are removed after the configured time. A mark then records the last removed line, so the rest of the chain can
// be checked from there.
package audit

// Package audit keeps the record of who did what: one line of JSON for each
// operation, in files that are only ever appended to.
//
// Every line carries the hash of the line before it, so that one that was
// changed, taken out or moved is found by whoever reads the file with a SHA-256
// at hand. And a line is written, by one write(2), before the answer goes out:
// what a client was told is on record, also after a kill -9 of the daemon.
package audit

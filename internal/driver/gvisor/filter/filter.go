// Package filter has gVisor's filters of system calls, as gVisor compiles them
// from its rules for the sandboxes that we make. Every sandbox would do that
// once more, and keep the pages that it took. gVisor's own builds have them too,
// but not its Go module.
//
// A filter counts only for the very options in its name: for all others, and on
// other processors, gVisor compiles. Of a new gVisor the filters are made anew,
// with `go test ./internal/driver/gvisor/filter -write`; without that the test
// fails.
package filter

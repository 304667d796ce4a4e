// Package filter holds gVisor's system call filters, as gVisor compiles them from
// its rules for the sandboxes that we create. Otherwise every sandbox would
// compile them again, and keep the memory that this took. gVisor's own builds
// contain them too, but its Go module does not.
//
// A filter applies only to exactly the options in its name: for others, and on
// other processors, gVisor compiles. After an upgrade of gVisor, write the filters
// again with `go test ./internal/driver/gvisor/filter -write`; until then the test
// fails.
package filter

// Package filter holds gVisor's system call filters, as gVisor compiles them from its rules for the sandboxes that we
// create. Without them, every sandbox would compile the filters again, and keep the memory that this needs. gVisor's
// own builds contain compiled filters too, but its Go module does not.
//
// A filter applies only to exactly the options in its name. For other options, and on other processors, gVisor compiles
// its filters. After an upgrade of gVisor, write the filters again with `go test ./internal/driver/gvisor/filter
// -write`; until then the test fails.
package filter

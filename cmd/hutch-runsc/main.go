// Hutch-runsc is gVisor's OCI runtime, runsc, built from its Go module at the
// version in go.mod and otherwise unchanged.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }

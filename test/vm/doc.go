// Package vm tests the built programs on another kernel than the host's: one
// that has control groups of version 2 only.
//
// The machine is qemu without KVM, Debian's kernel, and a file system in memory
// that is put together here: the programs, some tests of other packages, bash
// and what it needs. This package's own test program is its first process; see
// guest_test.go. What it prints on the serial console is the result.
//
// An emulated processor is slow, and what is tested keeps time limits: so the
// test is alone on the host when it runs, with `make test-vm`.
package vm

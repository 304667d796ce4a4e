// Package vm tests the built programs on another kernel than the host's: one with
// control groups of version 2 only.
//
// The machine is qemu without KVM, with Debian's kernel and a file system in memory. The file system is built here,
// from the programs, some tests of other packages, bash, and the libraries that these need. This package's own test
// program is its first process; see guest_test.go. Its output on the serial console is the result.
//
// An emulated processor is slow, but the tests keep their time limits. So nothing else
// must run on the host: use `make test-vm`.
package vm

//go:build race

package runner

// The race detector maps terabytes of address space, so the address space of a process under it cannot be limited.
const limitsMemory = false

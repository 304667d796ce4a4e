//go:build race

package runner

// The race detector maps terabytes of address space, so a process under it has no limit of address space that could be enforced.
const limitsMemory = false

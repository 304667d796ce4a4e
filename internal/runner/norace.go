//go:build !race

package runner

const limitsMemory = true

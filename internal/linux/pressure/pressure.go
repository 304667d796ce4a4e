// Package pressure tells when the machine is short of memory, by what its
// kernel says of that.
package pressure

import (
	"os"
	"strconv"
	"strings"
)

const (
	stalled = 5.0 // percent of the last ten seconds that programs waited for memory
	share   = 10  // a tenth of the memory is to be available
)

// Memory reports whether the machine is short of memory: programs wait for it,
// or little is left. What the kernel does not tell is taken for good.
func Memory() bool {
	psi, _ := os.ReadFile("/proc/pressure/memory")
	info, _ := os.ReadFile("/proc/meminfo")
	return some(string(psi)) > stalled || scarce(string(info))
}

// some is avg10 of the line "some avg10=0.00 avg60=0.00 avg300=0.00 total=0".
func some(psi string) float64 {
	_, text, _ := strings.Cut(psi, "some avg10=")
	text, _, _ = strings.Cut(text, " ")
	percent, _ := strconv.ParseFloat(text, 64)
	return percent
}

func scarce(info string) bool {
	return size(info, "MemAvailable:")*share < size(info, "MemTotal:")
}

// Total is how many bytes of memory the machine has; 0 where nobody tells.
func Total() int64 {
	info, _ := os.ReadFile("/proc/meminfo")
	return size(string(info), "MemTotal:")
}

// size reads a line like "MemTotal:   24683660 kB".
func size(info, name string) int64 {
	for line := range strings.Lines(info) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// Package pressure handles a shortage of memory: it reports when the machine, or the control groups of this process,
// are nearly out of memory, and makes the kernel kill other processes before this one.
package pressure

import (
	"os"
	"strconv"
	"strings"

	"hutch/internal/linux/cgroup"
)

const (
	stalled = 5.0 // percent of the last ten seconds that programs waited for memory
	share   = 10  // a tenth of the memory should be available
	// last is the amount of free memory below which no new sandbox can start: a thirtieth of all memory, or the memory
	// that a few sandboxes need to start.
	lastShare, last = 30, 64 << 20
)

// Memory reports whether this process is short of memory: programs wait for it, or little is left. Values that the
// kernel does not report count as good.
func Memory() bool {
	psi, _ := os.ReadFile("/proc/pressure/memory")
	all, free := room()
	return some(string(psi)) > stalled || free*share < all
}

// Exhausted reports whether so little memory is left that a new program can make the kernel kill another one.
func Exhausted() bool {
	all, free := room()
	return free < min(max(all/lastShare, last), all/share)
}

// Kills counts the processes of the machine that the kernel has killed for lack of memory.
func Kills() int {
	counts, _ := os.ReadFile("/proc/vmstat")
	return int(number(string(counts), "oom_kill", 2))
}

// Total returns how many bytes of memory this process and its children can use; 0 if that is unknown.
func Total() int64 {
	all, _ := room()
	return all
}

// room returns the total and the free memory of the machine, or of a control group with less free memory.
func room() (all, free int64) {
	info, _ := os.ReadFile("/proc/meminfo")
	all, free = size(string(info), "MemTotal:"), size(string(info), "MemAvailable:")
	if limit, left := cgroup.Bounds(); limit > 0 && (limit < all || left < free) {
		return min(limit, all), min(left, free)
	}
	return all, free
}

// some returns the value avg10 of the line "some".
func some(psi string) float64 {
	percent, _ := strconv.ParseFloat(stallValue(psi, "some", "avg10"), 64)
	return percent
}

// stallValue returns a value of a line such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"; "" if the text does
// not have it.
func stallValue(psi, line, name string) string {
	for l := range strings.Lines(psi) {
		words := strings.Fields(l)
		if len(words) == 0 || words[0] != line {
			continue
		}
		for _, word := range words {
			if value, ok := strings.CutPrefix(word, name+"="); ok {
				return value
			}
		}
	}
	return ""
}

// size reads a line like "MemTotal:   24683660 kB".
func size(info, name string) int64 { return number(info, name, 3) << 10 }

// number reads the second word of the line that begins with name.
func number(text, name string, words int) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == words && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

package mount

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Points returns the paths of mounts, in the order of proc_pid_mountinfo(5): a mount on top of another mount comes
// after that mount.
func Points() ([]string, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read what is mounted: %w", err)
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape(fields[4]))
		}
	}
	return points, nil
}

// unescape reads \040 as a space, and so on.
func unescape(path string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(path, `\`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		n, err := strconv.ParseUint(after[:min(3, len(after))], 8, 8)
		if err != nil {
			b.WriteByte('\\')
			path = after
			continue
		}
		b.WriteByte(byte(n))
		path = after[3:]
	}
}

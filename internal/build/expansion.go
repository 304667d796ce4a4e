package build

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"hutch"
)

// mostExpanded is how long a line of a Dockerfile can be when its variables are replaced, in bytes. Each of ten lines
// that name the one before ten times would otherwise make ten times as much.
const mostExpanded = 256 << 10

var (
	variable   = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)`)
	assignment = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)=`)
	replacing  = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*/`)
	definesAny = regexp.MustCompile(`(?i)^\s*(ONBUILD\s+)?(ENV|ARG)\s`)
)

// checkExpansion refuses a Dockerfile whose variables can grow without end. It counts more than the frontend makes of
// them, never less: each value is taken for all of its line.
func checkExpansion(text []byte, args map[string]string) error {
	size := map[string]int{}
	for name, value := range args {
		size[name] = len(value)
	}
	for line := range bytes.Lines(joined(text)) {
		n := len(line)
		for _, m := range variable.FindAllSubmatch(line, -1) {
			n += size[string(m[1])]
		}
		if replacing.Match(line) {
			n *= n
		}
		if n > mostExpanded && n > len(line) {
			return hutch.Errorf(hutch.Exhausted, "the line %.80q of the Dockerfile has more than %d KiB when its variables are replaced: write less into them", strings.TrimSpace(string(line)), mostExpanded>>10).With("limit", "build variables")
		}
		if !definesAny.Match(line) {
			continue
		}
		for _, m := range assignment.FindAllSubmatch(line, -1) {
			size[string(m[1])] = max(size[string(m[1])], n)
		}
		if words := strings.Fields(string(line)); len(words) > 2 { // ENV NAME VALUE
			size[words[1]] = max(size[words[1]], n)
		}
	}
	return nil
}

// continued is the end of a line that the next one continues, with the comments between them.
var continued = regexp.MustCompile("[\\\\`][ \\t]*\n([ \\t]*(#[^\n]*)?\n)*")

// joined is a Dockerfile whose continued lines are one line.
func joined(text []byte) []byte {
	return continued.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte(" "))
}

func itoa(n int) string { return strconv.Itoa(n) }

package hutch

import (
	"regexp"
	"sync"
)

// pattern compiles an expression at its first use. Every sandbox runs an agent, which contains this package but uses no
// pattern: compiling all of them would take a quarter of a megabyte in each agent.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

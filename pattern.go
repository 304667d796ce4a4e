package hutch

import (
	"regexp"
	"sync"
)

// pattern compiles an expression when it is first needed. An agent, of which
// there is one in every sandbox, has this package in it and needs none of them:
// together they take a quarter of a megabyte.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

package kernel

import (
	"encoding/json"
	"regexp"
	"strings"

	"hutch"
)

// Environ returns, for each language, the message that gives its interpreters the environment variables that have
// changed. A nil value removes the variable. The message to bash leaves out names that are not identifiers.
func Environ(changes map[string]*string) map[string]string {
	text, err := json.Marshal(changes)
	if err != nil {
		panic(err) // texts can always be encoded
	}
	var shell strings.Builder
	for name, value := range changes {
		switch {
		case !identifier.MatchString(name):
		case value == nil:
			shell.WriteString("builtin unset -v -- " + name + "; ")
		default:
			shell.WriteString("builtin export -- " + hutch.CommandLine(name+"="+*value) + "; ")
		}
	}
	line := "environ " + string(text) + "\n"
	return map[string]string{"python": line, "javascript": line, "typescript": line, "bash": shell.String() + ":\n"}
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Reborn returns, for each language, the message that gives its interpreters in a copy of a sandbox the new environment
// and makes them seed their random numbers again. Otherwise these would be the same in every copy.
func Reborn(env map[string]string) map[string]string {
	text, err := json.Marshal(env)
	if err != nil {
		panic(err) // texts can always be encoded
	}
	var shell strings.Builder
	for k, v := range env {
		shell.WriteString("builtin export -- " + hutch.CommandLine(k+"="+v) + "; ")
	}
	line := "reborn " + string(text) + "\n"
	return map[string]string{
		"python": line, "javascript": line, "typescript": line,
		"bash": shell.String() + "RANDOM=$SRANDOM\n",
	}
}

package kernel

import (
	"encoding/json"
	"strings"

	"hutch"
)

// Reborn is what the interpreters of each language are sent in a copy of the
// sandbox that they began in: the environment that is new, and to choose their
// random numbers again, which would otherwise be the same in every copy.
func Reborn(env map[string]string) map[string]string {
	text, err := json.Marshal(env)
	if err != nil {
		panic(err) // of texts only
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

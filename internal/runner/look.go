package runner

import (
	"regexp"
	"strings"

	"hutch"
	"hutch/internal/wire"
)

// Look returns a run that reports the languages of a sandbox. Its stdout is for [Found].
//
// All programs run at once, because some start a virtual machine. A program that cannot even print its version does
// not count. The output of each is written by one printf, and so in one piece.
func Look() wire.Start {
	var script strings.Builder
	script.WriteString("cd /\n")
	for _, l := range languages {
		for _, p := range l.Programs[1:] {
			script.WriteString("command -v " + p + " >/dev/null && ")
		}
		script.WriteString("look " + l.Name + " " + l.Programs[0] + " " + l.version + " &\n")
	}
	script.WriteString("wait\n")
	return wire.Start{Argv: []string{"sh", "-c", look + script.String()}}
}

// look takes a name, a program and its arguments.
const look = `look() {
	name=$1; shift
	said=$(exec "$@" </dev/null 2>&1) || return
	printf '%s\t%.1000s\n' "$name" "$(echo "$said" | tr '\n' ' ')"
}
`

// number finds a version in a program's output.
var number = regexp.MustCompile(`\d+(\.\d+)+|\d+`)

// Found parses the output of the programs. They are the sandbox's, so their output is untrusted.
func Found(out []byte) []hutch.Language {
	said := map[string]string{}
	for row := range strings.Lines(string(out)) {
		name, words, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
		said[name] = words
	}
	found := []hutch.Language{}
	for _, l := range languages {
		if words, ok := said[l.Name]; ok {
			aliases := append([]string{}, l.Aliases...)
			found = append(found, hutch.Language{Name: l.Name, Aliases: aliases, Version: clip(number.FindString(words), 40)})
		}
	}
	return found
}

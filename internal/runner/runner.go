// Package runner knows languages: how source text becomes a run.
//
// A language is data: one entry in a table. A run is sent to the agent as a [wire.Start]: the agent writes the source
// to a file, compiles it where that is needed, and runs it. No part of a source is ever put into a command line, and
// none is run on this side.
package runner

import (
	"slices"
	"strings"

	"hutch"
	"hutch/internal/wire"
)

// Language describes how programs in one language are run.
type Language struct {
	Name    string
	Aliases []string
	Suffix  string // suffix of source files, with its dot
	// Programs are the programs that an image must have, on its PATH. The first is the interpreter or compiler.
	Programs []string
	Package  string // Debian package that contains the programs

	// version are words of a shell that make the first program print its version.
	version string
	// These fields say how to run a source: run is the interpreter's command, with wire.SourceArg for the source;
	// compile is the compiler's command, which writes the program wire.ProgramArg; then run runs that program.
	run     []string
	compile []string
	env     []string
	// names returns the name of the source's file, and the part of the compiled program to run.
	names func(source string) (file, main string)
	// convert turns the source into the program to run, and returns its suffix.
	convert func(source string) (converted, suffix string, err error)
}

// Lookup finds a language by its name or an alias, in any case.
func Lookup(name string) (Language, error) {
	if l, ok := byName[strings.ToLower(name)]; ok {
		return l, nil
	}
	known := make([]string, len(languages))
	for i, l := range languages {
		known[i] = l.Name
	}
	return Language{}, hutch.Errorf(hutch.Invalid, "unknown language %q: use one of %s", clip(name, 60), strings.Join(known, ", ")).
		With("field", "language").With("languages", known)
}

// Languages lists all languages by name.
func Languages() []Language { return slices.Clone(languages) }

// Start returns the agent's instructions to run source. The error is of kind Invalid when the source cannot be run at
// all.
func (l Language) Start(source string) (wire.Start, error) {
	if strings.Contains(source, "\x00") {
		return wire.Start{}, hutch.Errorf(hutch.Invalid, "the source holds a NUL byte, which no %s program may: send binary data on stdin", l.Name).
			With("field", "command")
	}
	suffix := l.Suffix
	if l.convert != nil {
		var err error
		if source, suffix, err = l.convert(source); err != nil {
			return wire.Start{}, err
		}
	}
	start := wire.Start{Source: source, SourceName: "main" + suffix, Env: slices.Clone(l.env)}
	start.Compile, start.Argv = slices.Clone(l.compile), slices.Clone(l.run)
	if l.run == nil {
		start.Argv = []string{wire.ProgramArg}
	}
	if l.names != nil {
		var main string
		start.SourceName, main = l.names(source)
		start.Argv = append(start.Argv, main)
	}
	return start, nil
}

// byName finds languages by name and alias.
var byName = func() map[string]Language {
	m := map[string]Language{}
	for _, l := range languages {
		for _, name := range append([]string{l.Name}, l.Aliases...) {
			m[name] = l
		}
	}
	return m
}()

// clip bounds a text of the client's that we quote in an answer.
func clip(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

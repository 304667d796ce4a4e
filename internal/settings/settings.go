// Package settings reads the flags of a program from further sources: its environment and a configuration file.
//
// The set of flags is the only list of settings. A key of the file is the name of a flag; a variable is a prefix and
// that name in upper case, with _ for -. So a new flag is a setting at once, and there are no other settings. The
// command line overrides the environment, the environment overrides the file, and the file overrides the default.
//
// Apply is strict: it refuses a key that no flag has, and a value of another type than the flag's, even if another
// source overrides that value.
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Program says which flags are settings, and where their values can be.
type Program struct {
	Prefix string // prefix of the variables, such as HUTCH_
	// Variables are the names of variables that do not follow from the name of their flag.
	Variables map[string]string
	// Not are flags that are not settings.
	Not []string
	// Getenv is os.Getenv, or another environment. An empty value counts as missing.
	Getenv func(string) string
	// Meant returns a question that suggests a known name for an unknown one; "" if none is similar.
	Meant func(name string, names []string) string
}

// Origin says where a value is from. The zero Origin is the default.
type Origin struct {
	Flag     bool // flag of the command line
	Variable string
	File     string
	Line     int
}

// Kind returns "flag", "environment", "file" or "default".
func (o Origin) Kind() string {
	switch {
	case o.Flag:
		return "flag"
	case o.Variable != "":
		return "environment"
	case o.File != "":
		return "file"
	}
	return "default"
}

func (o Origin) String() string {
	switch o.Kind() {
	case "environment":
		return "$" + o.Variable
	case "file":
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return o.Kind()
}

// Is reports whether a flag is a setting.
func (p Program) Is(f *pflag.Flag) bool { return f.Name != "help" && !slices.Contains(p.Not, f.Name) }

// Variable returns the name of the environment variable of a flag.
func (p Program) Variable(flag string) string {
	if name := p.Variables[flag]; name != "" {
		return name
	}
	return p.Prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Names returns the names of all settings among flags.
func (p Program) Names(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if p.Is(f) {
			names = append(names, f.Name)
		}
	})
	return names
}

// Apply sets those flags that the command line did not set, from the environment and from a file; file can be "". It
// returns the origin of each setting. An error lists all faults, one in each line.
func (p Program) Apply(flags *pflag.FlagSet, file string) (map[string]Origin, error) {
	var wrong []error
	written := map[string]entry{}
	if file != "" {
		var err error
		if written, err = p.read(flags, file); err != nil {
			wrong = append(wrong, err)
		}
	}
	origins := map[string]Origin{}
	flags.VisitAll(func(f *pflag.Flag) {
		if !p.Is(f) {
			return
		}
		origin, err := p.apply(f, written[f.Name])
		wrong = append(wrong, err)
		origins[f.Name] = origin
	})
	return origins, errors.Join(wrong...)
}

// apply sets one flag from its strongest source.
func (p Program) apply(f *pflag.Flag, e entry) (Origin, error) {
	variable := p.Variable(f.Name)
	text := p.Getenv(variable)
	switch {
	case f.Changed:
		return Origin{Flag: true}, nil
	case text != "":
		if err := set(f, fromVariable(f, text)); err != nil {
			return Origin{}, fmt.Errorf("$%s: %w", variable, err)
		}
		return Origin{Variable: variable}, nil
	case e.at.Line > 0:
		if err := set(f, e.texts); err != nil {
			return Origin{}, fmt.Errorf("%s: %s: %w", e.at, f.Name, err)
		}
		return e.at, nil
	}
	return Origin{}, nil
}

// fromVariable splits a list whose items can hold commas at white space. Other values are as on the command line.
func fromVariable(f *pflag.Flag, text string) []string {
	if f.Value.Type() == "stringArray" {
		return strings.Fields(text)
	}
	return []string{text}
}

// set sets a flag to a value, or to a list of them.
func set(f *pflag.Flag, texts []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok && len(texts) == 0 {
		return list.Replace(nil)
	}
	for _, text := range texts {
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" { // --flag and --flag=VALUE are both right
			switch text {
			case "false":
				continue
			case "true":
				text = f.NoOptDefVal
			}
		}
		if err := f.Value.Set(text); err != nil {
			return fmt.Errorf("%q %s", text, needs(f, err))
		}
	}
	f.Changed = true
	return nil
}

// needs describes the values that a flag accepts, after it refused a value.
func needs(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "bool":
		return "is neither true nor false"
	case "int", "int64":
		return "is not a whole number"
	case "float64":
		return "is not a number"
	case "stringToString":
		return "is not NAME=VALUE"
	case "stringSlice":
		return "is not a list of texts with commas between them"
	}
	return "is refused: " + err.Error()
}

// Package yamlfault describes errors of the YAML decoder for the author of the file. The decoder's own texts name Go's
// types.
package yamlfault

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type (\S+)`)
	wrongKind    = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: (`[^`]*`))? into (\\S+)")
)

// kinds are the kinds of values in YAML, by the names of their tags.
var kinds = map[string]string{
	"str": "a text", "seq": "a list", "map": "a map", "int": "a number", "float": "a number", "bool": "a boolean", "null": "nothing", "timestamp": "a date",
}

// Words describes an error of the decoder in one line. names are what the author calls the values of Go's structs, such
// as "step" for flow.Step.
func Words(err error, names map[string]string) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	text = unknownField.ReplaceAllStringFunc(text, func(s string) string {
		m := unknownField.FindStringSubmatch(s)
		return fmt.Sprintf("a %s has no field %q", name(names, m[2]), m[1])
	})
	text = wrongKind.ReplaceAllStringFunc(text, func(s string) string {
		m := wrongKind.FindStringSubmatch(s)
		found := "the value"
		if m[2] != "" {
			found = m[2]
		}
		if kind := kinds[m[1]]; kind != "" {
			found += " is " + kind
		} else {
			found += " does not fit"
		}
		return found + ": write " + wanted(m[3], names)
	})
	return strings.ReplaceAll(text, "\n  ", "; ")
}

func name(names map[string]string, goType string) string {
	if n := names[goType]; n != "" {
		return n
	}
	return "map"
}

// wanted names the kind of value that fits a Go type.
func wanted(goType string, names map[string]string) string {
	switch goType = strings.TrimPrefix(goType, "*"); {
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "string":
		return "a text; quotes make a text of a number"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case names[goType] != "":
		return "a map with the fields of a " + names[goType]
	default:
		return "a map"
	}
}

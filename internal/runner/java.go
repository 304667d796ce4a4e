package runner

import (
	"regexp"
	"slices"
	"strings"
)

// javaToken matches the parts of Java's source text that are needed to find its types: marks, words, and, to skip
// them, comments and literals.
var javaToken = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/|"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}();.]|[\pL_$][\pL\pN_$]*`)

// javaType is a type at the top of a source.
type javaType struct {
	name         string
	public, main bool
}

// javaNames finds the file name of a Java source and the class to run. The file is named after the public type; the
// class is the first with a main or, without one, the first. Javac checks the source later, so the result can be wrong
// for text that is not Java.
func javaNames(source string) (file, class string) {
	in, types := javaTypes(source)
	file, class = "Main", "Main"
	if len(types) > 0 {
		file, class = types[0].name, types[0].name
	}
	if i := slices.IndexFunc(types, func(t javaType) bool { return t.public }); i >= 0 {
		file = types[i].name
	}
	if i := slices.IndexFunc(types, func(t javaType) bool { return t.main }); i >= 0 {
		class = types[i].name
	}
	if in != "" {
		class = in + "." + class
	}
	if len(file) > 90 {
		file = "Main" // javac reports the error
	}
	return file + ".java", class
}

// javaTypes lists the types of a source, and names its package.
func javaTypes(source string) (in string, types []javaType) {
	var depth int
	var statement, before string // the first word of the current statement; the last token
	var public, named bool
	for _, t := range javaToken.FindAllString(source, -1) {
		switch {
		case strings.ContainsAny(t[:1], `/"'`):
			continue
		case t == "{":
			depth++
		case t == "}":
			depth--
			public = false
		case depth == 1 && t == "(" && before == "main" && len(types) > 0:
			types[len(types)-1].main = true
		case depth != 0:
		case t == ";":
			statement, public = "", false
		case statement == "import":
		case statement == "package":
			in += t
		case t == "import" || t == "package":
			statement = t
		case t == "public":
			public = true
		case named && !strings.Contains("().", t):
			types = append(types, javaType{name: t, public: public})
		}
		named = depth == 0 && statement == "" && (t == "class" || t == "interface" || t == "enum" || t == "record")
		before = t
	}
	return in, types
}

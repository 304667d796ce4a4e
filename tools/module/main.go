// Command module gives the Go module of the current folder another path:
//
//	go run ./tools/module example.com/you/hutch
//
// It rewrites go.mod, the imports of all Go files, and import paths in comments
// and in Markdown. `make module PATH=...` runs it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("give the new path of the module, and nothing else: make module PATH=example.com/you/hutch")
	}
	if err := check(args[0]); err != nil {
		return err
	}
	old, err := modulePath("go.mod")
	if err != nil {
		return err
	}
	r := renaming{old: old, new: args[0], text: mentions(old)}
	if err := filepath.WalkDir(".", r.visit); err != nil {
		return err
	}
	fmt.Printf("the module %s is now %s; %d files were changed\n", r.old, r.new, r.changed)
	return nil
}

var importable = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+$`)

// check refuses a path that `go get` could not fetch.
func check(path string) error {
	if !importable.MatchString(path) {
		return fmt.Errorf("%q cannot be fetched by go get: the path begins with a host name that has a dot, and continues with a slash, as example.com/you/hutch does", path)
	}
	return nil
}

func modulePath(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("run this in the folder of go.mod: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", fmt.Errorf("%s has no line that begins with \"module \"", file)
}

// mentions finds import paths of the module in prose and in examples: a package
// below the module, an import alone on its line, and arguments of `go mod edit`.
func mentions(module string) []*regexp.Regexp {
	m := regexp.QuoteMeta(module)
	return []*regexp.Regexp{
		regexp.MustCompile(`(?m)(^|[^\w./-])` + m + `(/(?:api|bench|client|cmd|examples|internal|test|tools)\b)`),
		regexp.MustCompile(`(?m)(^\s*(?:import )?")` + m + `("$)`),
		regexp.MustCompile(`(-(?:replace|require)[ =])` + m + `([=@])`),
	}
}

// renaming is one change of the module's path.
type renaming struct {
	old, new string
	text     []*regexp.Regexp
	changed  int
}

// visit rewrites one file.
func (r *renaming) visit(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	name := entry.Name()
	if entry.IsDir() {
		if path != "." && (name[0] == '.' || name == "node_modules" || path == "bin") {
			return filepath.SkipDir
		}
		return nil
	}
	rewrite := r.rewriter(path)
	if rewrite == nil || !entry.Type().IsRegular() {
		return nil
	}
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after, err := rewrite(before)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	r.changed++
	return os.WriteFile(path, after, 0o644) // keeps the file's mode
}

// rewriter returns the function that rewrites a file; nil if the file is not rewritten.
func (r *renaming) rewriter(path string) func([]byte) ([]byte, error) {
	switch {
	case path == "go.mod":
		return func(b []byte) ([]byte, error) {
			return bytes.Replace(b, []byte("module "+r.old+"\n"), []byte("module "+r.new+"\n"), 1), nil
		}
	case filepath.Ext(path) == ".go":
		return r.source
	case filepath.Ext(path) == ".md":
		return func(b []byte) ([]byte, error) { return r.prose(b), nil }
	}
	return nil
}

func (r *renaming) prose(b []byte) []byte {
	for _, mention := range r.text {
		b = mention.ReplaceAll(b, []byte("${1}"+r.new+"${2}"))
	}
	return b
}

// edit replaces the bytes from..to of a file.
type edit struct {
	from, to int
	with     string
}

// source rewrites the imports and the comments of a Go file, and sorts the
// imports again. Strings stay: "hutch" is also the name of a program.
func (r *renaming) source(b []byte) ([]byte, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "", b, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var edits []edit
	at := func(p token.Pos) int { return files.Position(p).Offset }
	for _, im := range f.Imports {
		if below, ok := strings.CutPrefix(strings.Trim(im.Path.Value, `"`), r.old); ok && (below == "" || below[0] == '/') {
			edits = append(edits, edit{at(im.Path.Pos()), at(im.Path.End()), strconv.Quote(r.new + below)})
		}
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			edits = append(edits, edit{at(c.Pos()), at(c.End()), string(r.prose([]byte(c.Text)))})
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from }) // from the end, so that offsets stay valid
	out := slices.Clone(b)
	for _, e := range edits {
		out = slices.Replace(out, e.from, e.to, []byte(e.with)...)
	}
	if bytes.Equal(out, b) {
		return b, nil
	}
	return format.Source(out)
}

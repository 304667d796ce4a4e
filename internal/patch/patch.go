// Package patch reads a diff of files, and applies it to a folder of this machine.
//
// The diff comes from a sandbox, so its author is not trusted. Two decisions make it safe to apply. First, a person
// reads the same text that is applied: there is no second description that could differ. Second, only the output of
// `git diff --binary --full-index --no-renames` is understood, and everything else is refused. No program runs, git
// included: its configuration, hooks and filters are files of a folder that may come from a stranger.
//
// [Patch.Apply] changes nothing unless every file fits. It follows no link, and touches none of git's own files.
package patch

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"hutch"
)

// Kinds of files, as git writes their modes.
const (
	modeFile    = "100644"
	modeProgram = "100755"
	modeLink    = "120000"
	modeModule  = "160000" // a repository in the repository
)

// Patch is a diff, file by file, in the order of its text.
type Patch struct {
	Files []File
}

// File is the change of one file.
type File struct {
	Path    string
	OldMode string // empty for a new file
	NewMode string // empty for a deleted file
	// Added and Removed count lines; both are 0 for a file that is not text.
	Added, Removed int
	Binary         bool

	oldID, newID string // git's ids of the content before and after; empty when only the mode changes
	text         string // the changed pieces of a text file, as they were read
	data         *binary
}

// New and Deleted report whether the file exists only after, or only before.
func (f File) New() bool     { return f.OldMode == "" }
func (f File) Deleted() bool { return f.NewMode == "" }

// Sum is the size of a diff, in numbers.
type Sum struct{ Files, Added, Removed int }

// Count refuses the same diffs as Parse. Unlike Parse it keeps no files, so that a diff with many short lines needs
// little memory.
func Count(text []byte) (s Sum, err error) {
	err = each(text, func(f File) {
		s = Sum{s.Files + 1, s.Added + f.Added, s.Removed + f.Removed}
	})
	return s, err
}

// Parse parses the text of a diff. It refuses everything that git does not write with the options in the comment of the
// package.
func Parse(text []byte) (*Patch, error) {
	p := &Patch{}
	if err := each(text, func(f File) { p.Files = append(p.Files, f) }); err != nil {
		return nil, err
	}
	return p, nil
}

func each(text []byte, visit func(File)) error {
	r := &reader{rest: string(text)}
	for !r.end() {
		f, err := r.file()
		if err != nil {
			return err
		}
		visit(f)
	}
	return nil
}

// reader reads the lines of a text.
type reader struct {
	rest string
	line int // number of the last line that was read
}

func (r *reader) end() bool { return r.rest == "" }

// peek returns the next line, with its end.
func (r *reader) peek() string {
	if i := strings.IndexByte(r.rest, '\n'); i >= 0 {
		return r.rest[:i+1]
	}
	return r.rest
}

func (r *reader) take() string {
	line := r.peek()
	r.rest = r.rest[len(line):]
	r.line++
	return line
}

// after reads the next line if it begins with a prefix, and returns the rest of it.
func (r *reader) after(prefix string) (string, bool) {
	line, ok := strings.CutPrefix(r.peek(), prefix)
	if !ok {
		return "", false
	}
	r.take()
	return strings.TrimSuffix(line, "\n"), true
}

func (r *reader) refuse(format string, args ...any) error {
	return hutch.Errorf(hutch.Invalid, "line %d of the difference cannot be applied: "+format, append([]any{r.line}, args...)...)
}

// file reads the change of one file.
func (r *reader) file() (f File, err error) {
	names, ok := r.after("diff --git ")
	if !ok {
		r.take()
		return f, r.refuse("it does not begin a file")
	}
	if f.Path, err = r.path(names); err != nil {
		return f, err
	}
	if err := r.modes(&f); err != nil {
		return f, err
	}
	switch {
	case strings.HasPrefix(r.peek(), "--- "):
		return f, r.text(&f)
	case r.peek() == "GIT binary patch\n":
		r.take()
		f.Binary = true
		f.data, err = r.binary()
		return f, err
	case f.oldID != f.newID && !f.New() && !f.Deleted():
		return f, r.refuse("the change of %q is not there", f.Path)
	}
	return f, nil // empty, or only the mode changes
}

// path reads the two names of a file, which are the same.
func (r *reader) path(names string) (string, error) {
	half := len(names) / 2
	if len(names) < 5 || names[half] != ' ' {
		return "", r.refuse("a file that moved is not understood")
	}
	before, ok1 := name(names[:half], "a/")
	after, ok2 := name(names[half+1:], "b/")
	if !ok1 || !ok2 || before != after {
		return "", r.refuse("a file that moved is not understood")
	}
	return after, nil
}

// name reads a name, which git quotes if a character in it is special.
func name(s, prefix string) (string, bool) {
	if strings.HasPrefix(s, `"`) {
		unquoted, err := strconv.Unquote(s) // the escapes of C that git uses are escapes of Go
		if err != nil {
			return "", false
		}
		s = unquoted
	}
	return strings.CutPrefix(s, prefix)
}

var indexLine = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})\.\.([0-9a-f]{40}|[0-9a-f]{64})(?: ([0-7]{6}))?$`)

// modes reads the lines between the names and the content.
func (r *reader) modes(f *File) error {
	var made, deleted bool
	if mode, ok := r.after("old mode "); ok {
		f.OldMode = mode
		if f.NewMode, ok = r.after("new mode "); !ok {
			return r.refuse("the new mode is missing")
		}
	} else if mode, ok := r.after("new file mode "); ok {
		f.NewMode, made = mode, true
	} else if mode, ok := r.after("deleted file mode "); ok {
		f.OldMode, deleted = mode, true
	}
	if index, ok := r.after("index "); ok {
		m := indexLine.FindStringSubmatch(index)
		if m == nil {
			return r.refuse("the index line is not understood")
		}
		f.oldID, f.newID = m[1], m[2]
		if m[3] != "" {
			f.OldMode, f.NewMode = m[3], m[3]
		}
	}
	for _, mode := range []string{f.OldMode, f.NewMode} {
		switch mode {
		case modeFile, modeProgram, modeLink, modeModule:
		case "":
		default:
			return r.refuse("%q has the mode %q, which no file of git has", f.Path, mode)
		}
	}
	if (f.OldMode == "") != made || (f.NewMode == "") != deleted {
		return r.refuse("the mode of %q is missing", f.Path)
	}
	return nil
}

// text reads the change of a text file.
func (r *reader) text(f *File) error {
	for _, side := range []struct {
		mark, prefix string
		absent       bool
	}{{"--- ", "a/", f.New()}, {"+++ ", "b/", f.Deleted()}} {
		given, ok := r.after(side.mark)
		given = strings.TrimSuffix(given, "\t") // git ends a name that contains a blank in this way
		path, named := name(given, side.prefix)
		if !ok || side.absent != (given == "/dev/null") || !side.absent && (!named || path != f.Path) {
			return r.refuse("it names another file than %q", f.Path)
		}
	}
	pieces := r.rest
	for strings.HasPrefix(r.peek(), "@@ ") {
		if err := r.hunk(f.count); err != nil {
			return err
		}
	}
	if f.text = pieces[:len(pieces)-len(r.rest)]; f.text == "" {
		return r.refuse("the change of %q is not there", f.Path)
	}
	return nil
}

// count receives the lines of a piece.
func (f *File) count(mark byte, _ int, _ string) error {
	switch mark {
	case '+':
		f.Added++
	case '-':
		f.Removed++
	}
	return nil
}

var hunkLine = regexp.MustCompile(`^@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@`)

// hunk reads one piece, with as many lines as its head says. It calls see with '@' and how many lines are before the
// piece in the old file, then with each line and its mark: a blank, '-' or '+'.
func (r *reader) hunk(see func(mark byte, at int, line string) error) error {
	m := hunkLine.FindStringSubmatch(r.take())
	if m == nil {
		return r.refuse("the head of a piece is not understood")
	}
	at, old, after := number(m[1], 0), number(m[2], 1), number(m[4], 1)
	if old > 0 {
		at-- // the first line is 1; a piece without old lines names the line before it
	}
	if at < 0 || old+after == 0 {
		return r.refuse("a piece begins before its file, or is empty")
	}
	if err := see('@', at, ""); err != nil {
		return err
	}
	for old > 0 || after > 0 {
		line := r.take()
		if len(line) == 0 {
			return r.refuse("the difference ends too early")
		}
		mark, content := line[0], line[1:]
		if strings.HasPrefix(r.peek(), `\ `) {
			r.take()
			content = strings.TrimSuffix(content, "\n")
		}
		switch mark {
		case ' ':
			old, after = old-1, after-1
		case '-':
			old--
		case '+':
			after--
		default:
			return r.refuse("a line begins with %q", mark)
		}
		if old < 0 || after < 0 {
			return r.refuse("a piece has other lines than its head says")
		}
		if err := see(mark, 0, content); err != nil {
			return err
		}
	}
	return nil
}

func number(s string, absent int) int {
	if s == "" {
		return absent
	}
	n, _ := strconv.Atoi(s) // at most nine digits
	return n
}

// change returns the new content of a file. The old content must match the diff exactly.
func (f *File) change(old []byte) ([]byte, error) {
	if f.Binary {
		return f.data.change(old)
	}
	e := edit{rest: string(old)}
	for r := (&reader{rest: f.text}); !r.end(); {
		if err := r.hunk(e.follow); err != nil {
			return nil, err
		}
	}
	for e.rest != "" {
		if err := e.write(e.take()); err != nil {
			return nil, err
		}
	}
	return e.out.Bytes(), nil
}

// edit makes the new content of a text file.
type edit struct {
	rest  string // rest of the old content
	next  int    // number of lines of the old content before rest
	out   bytes.Buffer
	ended bool // the last line had no line feed, so no line can follow
}

func (e *edit) follow(mark byte, at int, line string) error {
	switch {
	case mark == '+':
		return e.write(line)
	case mark != '@' && (e.rest == "" || e.take() != line):
		return errDiffers
	case mark == ' ':
		return e.write(line)
	case mark == '-':
		return nil
	}
	for e.next < at && e.rest != "" {
		if err := e.write(e.take()); err != nil {
			return err
		}
	}
	if e.next != at {
		return errDiffers
	}
	return nil
}

func (e *edit) take() (line string) {
	end := strings.IndexByte(e.rest, '\n') + 1
	if end == 0 {
		end = len(e.rest)
	}
	line, e.rest = e.rest[:end], e.rest[end:]
	e.next++
	return line
}

func (e *edit) write(line string) error {
	if e.ended {
		return errBroken // a person would read two lines, and one would be written
	}
	e.ended = !strings.HasSuffix(line, "\n")
	e.out.WriteString(line)
	return nil
}

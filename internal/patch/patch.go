// Package patch reads a difference of files, and applies it to a folder of this machine.
//
// The difference comes out of a sandbox, so its author is not trusted. Two decisions make it safe to apply. First, one
// text is both what a person reads and what is applied: there is no second description that could say something
// else. Second, only what `git diff --binary --full-index --no-renames` writes is understood, and everything else is
// refused. No program runs, git included: its configuration, hooks and filters are files of a folder that may come from a
// stranger.
//
// [Patch.Apply] changes nothing unless every file fits. It follows no link, and touches nothing that git calls its own.
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

// Patch is a difference, file by file, in the order of its text.
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

	oldID, newID string // what git calls the content before and after; empty when only the mode changes
	hunks        []hunk
	data         *binary
}

// New and Deleted report whether the file is there only after, or only before.
func (f File) New() bool     { return f.OldMode == "" }
func (f File) Deleted() bool { return f.NewMode == "" }

// hunk is a piece of a text file that changes.
type hunk struct {
	at       int // lines before it in the old file
	old, new []string
}

// Lines returns how many lines the whole patch adds and removes.
func (p *Patch) Lines() (added, removed int) {
	for _, f := range p.Files {
		added, removed = added+f.Added, removed+f.Removed
	}
	return added, removed
}

// Parse reads the text of a difference. It refuses everything that git does not write with the options above.
func Parse(text []byte) (*Patch, error) {
	r := &reader{rest: string(text)}
	p := &Patch{}
	for !r.end() {
		f, err := r.file()
		if err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	return p, nil
}

// reader takes lines off a text.
type reader struct {
	rest string
	line int // the number of the last line that was taken
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

// after takes the next line if it begins with a prefix, and returns the rest of it.
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
		given = strings.TrimSuffix(given, "\t") // git ends a name with a blank in it so
		path, named := name(given, side.prefix)
		if !ok || side.absent != (given == "/dev/null") || !side.absent && (!named || path != f.Path) {
			return r.refuse("it names another file than %q", f.Path)
		}
	}
	for strings.HasPrefix(r.peek(), "@@ ") {
		h, err := r.hunk()
		if err != nil {
			return err
		}
		f.hunks = append(f.hunks, h.hunk)
		f.Added, f.Removed = f.Added+h.added, f.Removed+h.removed
	}
	if len(f.hunks) == 0 {
		return r.refuse("the change of %q is not there", f.Path)
	}
	return nil
}

var hunkLine = regexp.MustCompile(`^@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@`)

type counted struct {
	hunk
	added, removed int
}

// hunk reads as many lines as its head says.
func (r *reader) hunk() (h counted, err error) {
	m := hunkLine.FindStringSubmatch(r.take())
	if m == nil {
		return h, r.refuse("the head of a piece is not understood")
	}
	at, old, after := number(m[1], 0), number(m[2], 1), number(m[4], 1)
	if h.at = at; old > 0 {
		h.at-- // the first line is 1; a piece without old lines says after which line it comes
	}
	if h.at < 0 {
		return h, r.refuse("a piece begins before its file")
	}
	for len(h.old) < old || len(h.new) < after {
		line := r.take()
		if len(line) == 0 {
			return h, r.refuse("the difference ends too early")
		}
		content := line[1:]
		if strings.HasPrefix(r.peek(), `\ `) {
			r.take()
			content = strings.TrimSuffix(content, "\n")
		}
		switch line[0] {
		case ' ':
			h.old, h.new = append(h.old, content), append(h.new, content)
		case '-':
			h.old = append(h.old, content)
			h.removed++
		case '+':
			h.new = append(h.new, content)
			h.added++
		default:
			return h, r.refuse("a line begins with %q", line[0])
		}
	}
	if len(h.old) != old || len(h.new) != after {
		return h, r.refuse("a piece has other lines than its head says")
	}
	return h, nil
}

func number(s string, absent int) int {
	if s == "" {
		return absent
	}
	n, _ := strconv.Atoi(s) // at most nine digits
	return n
}

// change returns the new content of a file. The old content must be exactly what the difference says.
func (f *File) change(old []byte) ([]byte, error) {
	if f.Binary {
		return f.data.change(old)
	}
	lines := strings.SplitAfter(string(old), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	var out bytes.Buffer
	next := 0
	for _, h := range f.hunks {
		if h.at < next || h.at+len(h.old) > len(lines) {
			return nil, errDiffers
		}
		for _, line := range lines[next:h.at] {
			out.WriteString(line)
		}
		for i, line := range h.old {
			if lines[h.at+i] != line {
				return nil, errDiffers
			}
		}
		for _, line := range h.new {
			out.WriteString(line)
		}
		next = h.at + len(h.old)
	}
	for _, line := range lines[next:] {
		out.WriteString(line)
	}
	return out.Bytes(), nil
}

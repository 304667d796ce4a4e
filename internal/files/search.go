package files

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"runtime"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"hutch"
)

const (
	maxText = 1 << 10  // bytes of a line in a match
	maxLine = 64 << 10 // bytes of a line that are searched
)

// SearchFiles implements hutch.Files.
func (f *FS) SearchFiles(ctx context.Context, _ string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	p, err := f.path(req.Path)
	if err != nil {
		return err
	}
	c, err := choose(req.Glob, req.Hidden)
	if err != nil {
		return err
	}
	re, err := expression(req.Pattern)
	if err != nil {
		return err
	}
	s := &search{re: re, out: out, left: req.Most(), limit: req.Most()}
	literal, _ := re.LiteralPrefix()
	s.literal = []byte(literal)
	base := path.Clean(p)
	ctx, cancel := f.bounded(ctx, base)
	defer cancel()
	if file, info, err := f.open(p); err == nil { // a single file
		defer file.Close()
		return s.file(ctx, file, info.Path)
	} else if !errors.Is(err, unix.EISDIR) {
		return err
	}
	return f.walkPath(ctx, p, func(e *entry) error {
		it, inside := c.takes(e)
		if it && e.st.Mode&unix.S_IFMT == unix.S_IFREG {
			if err := s.entry(ctx, f, e, path.Join(base, e.path)); err != nil {
				return err
			}
		}
		if !inside {
			return errSkip
		}
		return nil
	})
}

// maxSteps limits a compiled expression: each of its instructions can run at each byte of a line, and a match cannot be
// cancelled.
const maxSteps = 5000

func expression(pattern string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the pattern is not a regular expression in RE2's form: %v", err).Naming(hutch.AboutField, "pattern")
	}
	program, err := syntax.Compile(tree.Simplify())
	if err == nil && len(program.Inst) > maxSteps {
		return nil, hutch.Errorf(hutch.Invalid, "the pattern has %d steps when its repetitions are written out, and %d is the limit: repeat less", len(program.Inst), maxSteps).Naming(hutch.AboutField, "pattern")
	}
	if err != nil {
		return nil, err
	}
	return regexp.Compile(pattern)
}

// search looks for one expression.
type search struct {
	re      *regexp.Regexp
	literal []byte // text with which every match begins
	out     func(hutch.Match) error
	left    int
	limit   int
	in      *bufio.Reader
}

// entry searches a file of the walk, if it can be read.
func (s *search) entry(ctx context.Context, f *FS, e *entry, p string) error {
	fd, err := regular(e.dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), p)
	defer file.Close()
	if f.secret(fd) {
		return nil
	}
	return s.file(ctx, file, p)
}

func (s *search) file(ctx context.Context, file io.Reader, p string) error {
	if s.in == nil {
		s.in = bufio.NewReaderSize(nil, maxLine)
	}
	s.in.Reset(cancelled{ctx, file})
	if head, _ := s.in.Peek(8 << 10); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	for line, whole := 1, true; ; {
		text, err := s.in.ReadSlice('\n')
		if whole && len(text) > 0 { // the beginning of a longer line
			if err := s.line(p, line, bytes.TrimSuffix(text, []byte("\n"))); err != nil {
				return err
			}
		}
		if whole = err != bufio.ErrBufferFull; whole {
			line++
		}
		switch {
		case err == io.EOF:
			return nil
		case err == bufio.ErrBufferFull:
			runtime.Gosched() // let other work run
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return nil // the rest cannot be read
		}
	}
}

func (s *search) line(p string, number int, text []byte) error {
	if len(s.literal) > 0 && !bytes.Contains(text, s.literal) {
		return nil
	}
	at := s.re.FindIndex(text)
	if at == nil {
		return nil
	}
	if s.left--; s.left < 0 {
		return hutch.Errorf(hutch.Exhausted, "there are more than %d matches, the limit of this search: narrow it, or raise the limit", s.limit).With("limit", "matches")
	}
	return s.out(hutch.Match{Path: p, Line: number, Column: at[0] + 1, Text: excerpt(text, at[0])})
}

// excerpt returns the line or, if it is long, the part around the match.
func excerpt(line []byte, at int) string {
	if len(line) > maxText {
		begin := max(0, min(at-maxText/4, len(line)-maxText))
		line = line[begin : begin+maxText]
		for len(line) > 0 && begin > 0 && !utf8.RuneStart(line[0]) {
			line = line[1:]
		}
	}
	s := strings.ToValidUTF8(string(line), "\uFFFD")
	for len(s) > maxText { // the markers of invalid text are longer than the text itself
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

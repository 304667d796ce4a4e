package openterminal

import (
	"cmp"
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"hutch"
	"hutch/internal/compat"
)

// The searches of this file return the files that fit best first, so they look at all files of a folder before they
// answer.

const (
	maxWalked  = 100_000 // entries of a folder that a search looks at
	maxMatched = 10_000  // files that a search remembers
	maxLines   = 3       // lines with a match that are returned of a file
	maxPage    = 100     // results of an answer
)

// How well a file fits what is searched for, best first.
const (
	sameName = iota
	nameBegins
	nameContains
	pathContains
	onlyContent
)

// fit compares the name and the path of a file with a text in lower case.
func fit(text, name, relative string) int {
	name = strings.ToLower(name)
	switch {
	case name == text:
		return sameName
	case strings.HasPrefix(name, text):
		return nameBegins
	case strings.Contains(name, text):
		return nameContains
	case strings.Contains(strings.ToLower(relative), text):
		return pathContains
	}
	return onlyContent
}

// matched is a file that a search found.
type matched struct {
	file     hutch.FileInfo
	relative string
	fit      int
	lines    []matchedLine
}

// matchedLine is a line with a match.
type matchedLine struct {
	Line   int    `json:"line"`
	Column int    `json:"column"` // from 1, in units of UTF-16
	Text   string `json:"text"`
}

// searched returns the folder to search in, and whether hidden files are searched, too.
func (c *call) searched() (target string, hidden bool, err error) {
	if hidden, err = c.flag("show_hidden", false); err == nil {
		target, err = c.folder()
	}
	return target, hidden, err
}

// walk calls visit for the entries of a folder. A folder with too many entries is searched in part.
func (c *call) walk(target string, hidden bool, visit func(f hutch.FileInfo, relative string) error) error {
	base := strings.TrimSuffix(target, "/") + "/"
	err := c.svc.ListFiles(c.ctx, c.sandbox, hutch.ListRequest{Path: target, Recursive: true, Hidden: hidden, Limit: maxWalked}, func(f hutch.FileInfo) error {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		return visit(f, strings.TrimPrefix(f.Path, base))
	})
	if err == nil || isLimit(err) {
		return nil
	}
	return noFolder(err)
}

// isLimit reports whether a search ended because there is too much to look at. The matches until then are its answer.
func isLimit(err error) bool {
	return hutch.KindOf(err) == hutch.Exhausted && slices.Contains([]string{"files", "matches", "time"}, hutch.AsError(err).Limit())
}

// namedFile is a result of a search by name.
type namedFile struct {
	Path     string  `json:"path"`
	Name     string  `json:"name"`
	Type     string  `json:"type"`
	Size     int64   `json:"size"`
	Modified float64 `json:"modified"`
}

// search finds files by their names.
func (c *call) search() (any, error) {
	kind := c.query("type")
	if !slices.Contains([]string{"", "any", "file", "directory"}, kind) {
		return nil, hutch.Errorf(hutch.Invalid, "type is any, file or directory")
	}
	most, err := c.number("limit", 20, 1, maxPage)
	if err != nil {
		return nil, err
	}
	target, hidden, err := c.searched()
	if err != nil {
		return nil, err
	}
	text := strings.ToLower(strings.TrimSpace(c.query("query")))
	var best []matched
	err = c.walk(target, hidden, func(f hutch.FileInfo, relative string) error {
		m := matched{file: f, relative: relative, fit: fit(text, f.Name, "")}
		if is := itemOf(f).Type; m.fit == onlyContent || kind == "file" && is != "file" || kind == "directory" && is != "directory" {
			return nil
		}
		if best = append(best, m); len(best) > 2*maxPage {
			slices.SortFunc(best, byName)
			best = slices.Delete(best, maxPage, len(best))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(best, byName)
	results := []namedFile{}
	for _, m := range best[:min(len(best), int(most))] {
		i := itemOf(m.file)
		results = append(results, namedFile{valid(m.file.Path), valid(m.file.Name), i.Type, i.Size, i.Modified})
	}
	return map[string]any{"results": results}, nil
}

func byName(a, b matched) int {
	return cmp.Or(cmp.Compare(a.fit, b.fit), cmp.Compare(len(a.file.Name), len(b.file.Name)), cmp.Compare(strings.ToLower(a.relative), strings.ToLower(b.relative)))
}

func byPath(a, b matched) int {
	return cmp.Or(cmp.Compare(a.fit, b.fit), cmp.Compare(len(a.relative), len(b.relative)), cmp.Compare(strings.ToLower(a.relative), strings.ToLower(b.relative)))
}

// valid returns a text from inside of a sandbox as JSON can have it.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// contentMatch is a result of a search by name and content.
type contentMatch struct {
	Path     string        `json:"path"`
	Relative string        `json:"relative_path"`
	Name     string        `json:"name"`
	Type     string        `json:"type"`
	ByName   bool          `json:"name_match"`
	Lines    []matchedLine `json:"content_matches"`
}

// matches finds files by their names and their content.
func (c *call) matches() (any, error) {
	text := strings.TrimSpace(c.query("query"))
	if text == "" {
		return nil, hutch.Errorf(hutch.Invalid, "Query must not be blank")
	}
	offset, err := c.number("offset", 0, 0, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	most, err := c.number("limit", maxPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	target, hidden, err := c.searched()
	if err != nil {
		return nil, err
	}
	all, err := c.matchesIn(target, text, hidden)
	if err != nil {
		return nil, err
	}
	from := min(int(offset), len(all))
	to := min(from+int(most), len(all))
	results := []contentMatch{}
	for _, m := range all[from:to] {
		results = append(results, contentMatch{
			valid(m.file.Path), valid(m.relative), valid(m.file.Name), itemOf(m.file).Type, m.fit < onlyContent, append([]matchedLine{}, m.lines...),
		})
	}
	var next *int
	if to < len(all) {
		next = &to
	}
	return map[string]any{"results": results, "next_offset": next}, nil
}

// matchesIn returns all matches in a folder, best first.
func (c *call) matchesIn(target, text string, hidden bool) ([]matched, error) {
	lines := map[string][]matchedLine{}
	err := c.svc.SearchFiles(c.ctx, c.sandbox, hutch.SearchRequest{Path: target, Pattern: "(?i)" + regexp.QuoteMeta(text), Hidden: hidden, Limit: maxMatched}, func(m hutch.Match) error {
		if len(lines[m.Path]) == maxLines {
			return nil
		}
		if !compat.Take(c.ctx, len(m.Path)+len(m.Text)) {
			return compat.ErrNoRoom
		}
		lines[m.Path] = append(lines[m.Path], matchedLine{m.Line, columnOf(m), m.Text})
		return nil
	})
	if err != nil && !isLimit(err) {
		return nil, err
	}
	var all []matched
	lower := strings.ToLower(text)
	err = c.walk(target, hidden, func(f hutch.FileInfo, relative string) error {
		m := matched{f, relative, fit(lower, f.Name, relative), lines[f.Path]}
		if m.fit == onlyContent && m.lines == nil {
			return nil
		}
		if !compat.Take(c.ctx, 2*len(f.Path)) {
			return compat.ErrNoRoom
		}
		if all = append(all, m); len(all) > maxMatched {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	slices.SortFunc(all, byPath)
	return all, nil
}

// columnOf returns where a match is in its line, in units of UTF-16.
func columnOf(m hutch.Match) int {
	before := m.Text[:min(m.Column-1, len(m.Text))]
	n := 1
	for len(before) > 0 {
		r, size := utf8.DecodeRuneInString(before)
		n += utf16.RuneLen(r)
		before = before[size:]
	}
	return n
}

package openterminal

import (
	"cmp"
	"context"
	"errors"
	"math"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// chunk is one replacement. The line numbers count from 1, and limit where the target is looked for.
type chunk struct {
	Target      string `json:"target"`
	Replacement string `json:"replacement"`
	First       *int   `json:"start_line"`
	Last        *int   `json:"end_line"`
	All         bool   `json:"allow_multiple"`
}

// maxReplacements is the highest number of replacements in one request. Each reads the whole text.
const maxReplacements = 100

// replace makes all replacements in a file, or none.
func (c *call) replace() (any, error) {
	var req struct {
		Path         string  `json:"path"`
		Replacements []chunk `json:"replacements"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	if req.Path == "" || len(req.Replacements) == 0 || len(req.Replacements) > maxReplacements {
		return nil, hutch.Errorf(hutch.Invalid, "path and replacements are required, with 1 to %d replacements", maxReplacements)
	}
	name, err := c.resolve(req.Path)
	if err != nil {
		return nil, err
	}
	content, err := c.text(name)
	if err != nil {
		return nil, err
	}
	for _, r := range req.Replacements {
		if err := context.Cause(c.ctx); err != nil {
			return nil, err
		}
		if content, err = r.in(content); err != nil {
			return nil, err
		}
		if len(content) > maxText {
			return nil, compat.ErrTooLong
		}
	}
	return c.store(name, strings.NewReader(content))
}

// in makes the replacement in a text.
func (r chunk) in(content string) (string, error) {
	if r.Target == "" {
		return "", hutch.Errorf(hutch.Invalid, "target is empty: give the text to be replaced")
	}
	first, last := 1, math.MaxInt
	if r.First != nil {
		first = *r.First
	}
	if r.Last != nil {
		last = *r.Last
	}
	from, to, _ := span(content, first, last)
	before, region, after := content[:from], content[from:to], content[to:]
	switch n := strings.Count(region, r.Target); {
	case n == 0:
		return "", hutch.Errorf(hutch.Invalid, "Target string not found: %.100q", r.Target)
	case n > 1 && !r.All:
		return "", hutch.Errorf(hutch.Invalid, "Found %d occurrences of target string but allow_multiple is false", n)
	case len(content)+n*(len(r.Replacement)-len(r.Target)) > maxText:
		return "", compat.ErrTooLong
	}
	return before + strings.ReplaceAll(region, r.Target, r.Replacement) + after, nil
}

// results are the first matches of a search, as many as the client wants.
type results[T any] struct {
	list []T
	most int
	cut  bool
}

func newResults[T any](c *call) (*results[T], error) {
	most, err := c.number("max_results", 50, 1, 500)
	return &results[T]{list: []T{}, most: int(most)}, err
}

// add adds a match. Its error ends the search, because there are enough.
func (r *results[T]) add(match T) error {
	if len(r.list) == r.most {
		r.cut = true
		return errEnough
	}
	r.list = append(r.list, match)
	return nil
}

// answer answers a search that ended with err. A search that reaches a limit has the matches until then.
func (r *results[T]) answer(parameter, query, folder string, err error) (any, error) {
	r.cut = r.cut || hutch.KindOf(err) == hutch.Exhausted
	if err != nil && !r.cut {
		return nil, err
	}
	return map[string]any{parameter: query, "path": folder, "matches": r.list, "truncated": r.cut}, nil
}

// found is a line, or a file, with a match.
type found struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Text string `json:"content,omitempty"`
}

func (c *call) grep() (any, error) {
	query := c.query("query")
	if query == "" {
		return nil, hutch.Errorf(hutch.Invalid, "the parameter query is required")
	}
	matches, err := newResults[found](c)
	if err != nil {
		return nil, err
	}
	target, err := c.folder()
	if err != nil {
		return nil, err
	}
	isPattern, bad := c.flag("regex", true)
	anyCase, worse := c.flag("case_insensitive", false)
	perLine, worst := c.flag("match_per_line", true)
	if err := cmp.Or(bad, worse, worst); err != nil {
		return nil, err
	}
	pattern := query
	if !isPattern {
		pattern = regexp.QuoteMeta(query)
	}
	if anyCase {
		pattern = "(?i)" + pattern
	}
	include, err := patterns(c.r.URL.Query()["include"])
	if err != nil {
		return nil, err
	}
	last, spent := "", work(0)
	err = c.svc.SearchFiles(c.ctx, c.sandbox, hutch.SearchRequest{Path: target, Pattern: pattern, Hidden: true, Limit: 10000}, func(m hutch.Match) error {
		if len(include.all) > 0 {
			name := path.Base(m.Path)
			if err := spent.add(include, name); err != nil {
				return err
			}
			if !include.match(name) {
				return nil
			}
		}
		if perLine {
			return matches.add(found{m.Path, m.Line, m.Text})
		}
		if m.Path == last {
			return nil
		}
		last = m.Path
		return matches.add(found{File: m.Path})
	})
	return matches.answer("query", query, target, err)
}

// folder resolves the parameter path. A missing parameter means the working folder.
func (c *call) folder() (string, error) {
	name := c.query("path")
	if name == "" {
		name = "."
	}
	return c.resolve(name)
}

func (c *call) glob() (any, error) {
	pattern, kind := c.query("pattern"), c.query("type")
	if pattern == "" || !slices.Contains([]string{"", "any", "file", "directory"}, kind) {
		return nil, hutch.Errorf(hutch.Invalid, "pattern is required, and type is any, file or directory")
	}
	matches, err := newResults[item](c)
	if err != nil {
		return nil, err
	}
	target, err := c.folder()
	if err != nil {
		return nil, err
	}
	wanted, err := patterns([]string{pattern})
	if err != nil {
		return nil, err
	}
	unwanted, err := patterns(c.r.URL.Query()["exclude"])
	if err != nil {
		return nil, err
	}
	spent := work(0)
	err = c.svc.ListFiles(c.ctx, c.sandbox, hutch.ListRequest{Path: target, Recursive: true, Hidden: true}, func(f hutch.FileInfo) error {
		i := itemOf(f)
		i.Path = valid(strings.TrimPrefix(f.Path, strings.TrimSuffix(target, "/")+"/"))
		names := []string{f.Name, i.Path}
		if err := errors.Join(spent.add(wanted, names...), spent.add(unwanted, names...)); err != nil {
			return err
		}
		if kind == "file" && i.Type != "file" || kind == "directory" && i.Type != "directory" || !wanted.match(names...) || unwanted.match(names...) {
			return nil
		}
		return matches.add(i)
	})
	return matches.answer("pattern", pattern, target, err)
}

// The limits of patterns. A program chooses the names, and this server compares them: each step of a pattern can run at
// each byte of a name. So there are limits on the steps of the patterns, and on the steps of one request.
const (
	maxPatterns = 50
	maxPattern  = 1 << 10 // bytes
	maxSteps    = 1000    // most steps of all patterns of one parameter
	maxWork     = 1 << 30
)

// patternSet is the patterns of a parameter.
type patternSet struct {
	all   []*regexp.Regexp
	steps int
}

// patterns compiles patterns of a shell, in which * also matches slashes, as in Python's fnmatch.
func patterns(list []string) (set patternSet, err error) {
	for _, text := range list {
		if text == "" || text == "null" {
			continue
		}
		if len(set.all) == maxPatterns || len(text) > maxPattern {
			return set, hutch.Errorf(hutch.Invalid, "there are more than %d patterns, or one of more than %d bytes", maxPatterns, maxPattern)
		}
		quoted := regexp.QuoteMeta(valid(text))
		quoted = "^(?:" + strings.NewReplacer(`\*`, "(?s:.*)", `\?`, "(?s:.)", `\[!`, "[^", `\[`, "[", `\]`, "]").Replace(quoted) + ")$"
		tree, err := syntax.Parse(quoted, syntax.Perl)
		if err != nil {
			return set, hutch.Errorf(hutch.Invalid, "the pattern %.60q cannot be used: write *, ? and [a-z]", text)
		}
		program, err := syntax.Compile(tree.Simplify())
		if err != nil {
			return set, err
		}
		if set.steps += len(program.Inst); set.steps > maxSteps {
			return set, hutch.Errorf(hutch.Invalid, "the patterns are too complex: give fewer or shorter ones")
		}
		re, err := regexp.Compile(quoted)
		if err != nil {
			return set, err
		}
		set.all = append(set.all, re)
	}
	return set, nil
}

// match reports whether a pattern matches a name.
func (p patternSet) match(names ...string) bool {
	return slices.ContainsFunc(p.all, func(re *regexp.Regexp) bool { return slices.ContainsFunc(names, re.MatchString) })
}

// work counts the steps of a request.
type work int

// add counts the comparison of names with patterns, and returns an error if it is too much.
func (w *work) add(p patternSet, names ...string) error {
	for _, name := range names {
		*w += work(p.steps * len(name))
	}
	if *w > maxWork {
		return hutch.Errorf(hutch.Exhausted, "the search compares too many names with its patterns: search a smaller folder, or give shorter patterns").With("limit", "patterns")
	}
	return nil
}

package build

import (
	"context"
	"path"
	"strings"

	"github.com/moby/patternmatcher"

	"hutch"
)

// mostPatterns is how many patterns a .dockerignore, or a COPY, can have: each of them is tried on each path.
const mostPatterns = 1000

// pathPatterns are the patterns of a .dockerignore or of a COPY, in the order in which they count. A pattern matches a
// path if it matches the path or a folder above it.
//
// A build chooses the patterns and the paths. One match can take half a second, and a path has up to 2000 folders. So
// each folder is tried once for all paths in it, and a caller can end the matching between two patterns.
type pathPatterns struct {
	all     []pathPattern
	folders []matchedFolder // the folders above the last path, the outermost first
}

// pathPattern is one pattern. An exception cancels the matches of earlier patterns.
type pathPattern struct {
	matcher   *patternmatcher.PatternMatcher
	exception bool
	// none is the result for a folder that the pattern does not match. With it, the matcher does not try the folders
	// above a path.
	none patternmatcher.MatchInfo
}

// matchedFolder is a folder, and which patterns match it or a folder above it.
type matchedFolder struct {
	name string
	hits []bool
}

// newPathPatterns reads patterns. where is the source of the patterns, for errors.
func newPathPatterns(patterns []string, where string) (*pathPatterns, error) {
	if len(patterns) > mostPatterns {
		return nil, hutch.Errorf(hutch.Exhausted, "%s has more than %d patterns: write fewer", where, mostPatterns).With("limit", "build patterns")
	}
	l := &pathPatterns{}
	for _, text := range patterns {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		if len(text) > hutch.MaxPath {
			return nil, hutch.Errorf(hutch.Invalid, "%s has a pattern of %d bytes: no path has more than %d", where, len(text), hutch.MaxPath)
		}
		body, exception := strings.CutPrefix(path.Clean(text), "!")
		if strings.HasPrefix(body, "!") {
			body = `\` + body // an ordinary character
		}
		m, err := patternmatcher.New([]string{body})
		if err == nil && len(m.Patterns()) == 0 {
			err = errNoPattern
		}
		if err != nil {
			return nil, badPattern(where, text, err)
		}
		l.all = append(l.all, pathPattern{matcher: m, exception: exception})
	}
	return l, nil
}

var errNoPattern = hutch.Errorf(hutch.Invalid, "an exception needs a pattern")

func badPattern(where, text string, err error) error {
	return hutch.Errorf(hutch.Invalid, "%s has a pattern that cannot be read, %.200q: %v", where, text, err)
}

// match reports whether the patterns select a path, such as a/b.
func (l *pathPatterns) match(ctx context.Context, name string) (bool, error) {
	above, err := l.above(ctx, path.Dir(name))
	if err != nil {
		return false, err
	}
	matched := false
	for i := range l.all {
		p := &l.all[i]
		if p.exception != matched {
			continue
		}
		hit, err := p.match(ctx, name, above, i)
		if err != nil {
			return false, err
		}
		if hit {
			matched = !p.exception
		}
	}
	return matched, nil
}

// above returns which patterns match a folder or one above it; nil for the topmost folder, which no pattern matches.
func (l *pathPatterns) above(ctx context.Context, dir string) ([]bool, error) {
	for len(l.folders) > 0 {
		last := l.folders[len(l.folders)-1]
		if last.name == dir || strings.HasPrefix(dir, last.name+"/") {
			break
		}
		l.folders = l.folders[:len(l.folders)-1]
	}
	var hits []bool
	known := -1 // the length of the known folder, before its slash
	if n := len(l.folders); n > 0 {
		hits, known = l.folders[n-1].hits, len(l.folders[n-1].name)
	}
	for dir != "." && known < len(dir) {
		end := len(dir)
		if i := strings.IndexByte(dir[known+1:], '/'); i >= 0 {
			end = known + 1 + i
		}
		folder := matchedFolder{dir[:end], make([]bool, len(l.all))}
		for i := range l.all {
			hit, err := l.all[i].match(ctx, folder.name, hits, i)
			if err != nil {
				return nil, err
			}
			folder.hits[i] = hit
		}
		l.folders = append(l.folders, folder)
		hits, known = folder.hits, end
	}
	return hits, nil
}

// match reports whether the pattern matches a path, or a folder above it. i is the index of the pattern; above are the
// results of all patterns for the folder above.
func (p *pathPattern) match(ctx context.Context, name string, above []bool, i int) (bool, error) {
	if above != nil && above[i] {
		return true, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	from := p.none
	if above == nil {
		from = patternmatcher.MatchInfo{}
	}
	hit, info, err := p.matcher.MatchesUsingParentResults(name, from)
	if err == nil && !hit {
		p.none = info
	}
	return hit, err
}

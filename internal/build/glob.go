package build

import (
	"context"
	"path"
	"slices"
	"strings"

	"hutch"
)

// glob returns the paths that match a pattern, in order. The part before the first wildcard is resolved; without
// wildcards that is everything. A wildcard does not match a slash.
func (v view) glob(pattern string, follow bool) ([]string, error) {
	parts := strings.Split(clean(pattern), "/")
	i := slices.IndexFunc(parts, hasWildcard)
	if i < 0 {
		return []string{strings.ReplaceAll(clean(pattern), `\`, "")}, nil
	}
	base, err := v.resolve(path.Join(parts[:i]...), follow || i > 0)
	if err != nil {
		return nil, err
	}
	if _, err := path.Match(path.Join(parts[i:]...), ""); err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the pattern %.200q cannot be read: close its brackets", pattern)
	}
	found := []string{base}
	for _, part := range parts[i:] {
		var next []string
		for _, dir := range found {
			if v.ctx.Err() != nil {
				return nil, context.Cause(v.ctx)
			}
			if f, ok := v.lookup(dir); !ok || !f.mode.IsDir() {
				continue
			}
			for _, name := range v.names(dir) {
				if ok, _ := path.Match(part, name); ok {
					next = append(next, path.Join(dir, name))
				}
			}
		}
		found = next
	}
	return found, nil
}

func hasWildcard(part string) bool {
	for i := 0; i < len(part); i++ {
		switch part[i] {
		case '*', '?', '[':
			return true
		case '\\':
			i++
		}
	}
	return false
}

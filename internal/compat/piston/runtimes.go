package piston

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// runtime is a language as Piston lists it.
type runtime struct {
	Language string   `json:"language"`
	Version  string   `json:"version"`
	Aliases  []string `json:"aliases"`
}

func (h *Handler) listRuntimes(_ http.ResponseWriter, r *http.Request) (any, error) {
	return h.runtimes(r.Context())
}

func (h *Handler) listPackages(_ http.ResponseWriter, r *http.Request) (any, error) {
	list, err := h.runtimes(r.Context())
	type pack struct {
		Language  string `json:"language"`
		Version   string `json:"language_version"`
		Installed bool   `json:"installed"`
	}
	packs := []pack{}
	for _, l := range list {
		packs = append(packs, pack{l.Language, l.Version, true})
	}
	return packs, err
}

// runtimes returns the languages of the default image.
func (h *Handler) runtimes(ctx context.Context) ([]runtime, error) {
	found, err := h.languages.List(ctx)
	list := []runtime{}
	for _, l := range found {
		list = append(list, runtime{l.Name, compat.Version(l.Version), append([]string{}, l.Aliases...)})
	}
	return list, err
}

// choose returns the runtime of a language and a version selector.
func choose(list []runtime, language, selector string) (runtime, error) {
	language = strings.ToLower(language)
	for _, l := range list {
		if (l.Language == language || slices.Contains(l.Aliases, language)) && selects(selector, l.Version) {
			return l, nil
		}
	}
	return runtime{}, hutch.Errorf(hutch.Invalid, "%.60s-%.60s runtime is unknown", language, selector)
}

// selects reports whether a selector chooses a version of three numbers. A selector is "*", "3", "3.x", "3.11.2",
// "^3.1", "~3.11.0" or ">=3.10".
func selects(selector, version string) bool {
	selector = strings.TrimSpace(selector)
	if selector == "latest" {
		return true
	}
	want := parts(strings.TrimLeft(selector, "^~>=v "))
	have := parts(version)
	if want == nil || len(want) > len(have) {
		return false
	}
	fixed := len(want) // leading numbers that must be the same
	switch {
	case strings.HasPrefix(selector, "^"):
		fixed = min(1, len(want))
	case strings.HasPrefix(selector, "~"):
		fixed = min(2, len(want))
	case strings.HasPrefix(selector, ">="):
		fixed = 0
	}
	if !slices.Equal(want[:fixed], have[:fixed]) {
		return false
	}
	return slices.Compare(have[fixed:len(want)], want[fixed:]) >= 0
}

// parts returns the numbers of a version, up to a wildcard; nil if it is not a version.
func parts(version string) []uint64 {
	list := []uint64{}
	for part := range strings.SplitSeq(version, ".") {
		if part == "*" || part == "x" || part == "X" {
			return list
		}
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return nil
		}
		list = append(list, n)
	}
	return list
}

package piston

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
)

// runtime is a language as Piston lists it.
type runtime struct {
	Language string   `json:"language"`
	Version  string   `json:"version"`
	Aliases  []string `json:"aliases"`
}

const (
	fresh     = 5 * time.Minute // for which a list of languages is used
	maxOwners = 1000            // whose lists are remembered
)

// lists are the languages of the default image, as a sandbox of each owner reported them. Owners share no list: an
// owner's programs could change what the own sandbox reports.
type lists struct {
	mu      sync.Mutex
	byOwner map[string]known
}

type known struct {
	list  []runtime
	until time.Time
}

func (l *lists) get(owner string) ([]runtime, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.byOwner[owner]
	return k.list, ok && time.Now().Before(k.until)
}

func (l *lists) put(owner string, list []runtime) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byOwner == nil || len(l.byOwner) >= maxOwners {
		l.byOwner = map[string]known{}
	}
	l.byOwner[owner] = known{list, time.Now().Add(fresh)}
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

// runtimes returns the languages of the default image. A new sandbox of the caller is asked for them now and then.
func (h *Handler) runtimes(ctx context.Context) ([]runtime, error) {
	owner, _ := caller.OwnerOf(ctx)
	if list, ok := h.lists.get(owner.ID); ok {
		return list, nil
	}
	sb, err := h.svc.Create(ctx, hutch.CreateRequest{Network: hutch.Network{Mode: hutch.NetworkNone}, Timeout: spare, OnIdle: hutch.IdleDestroy})
	if err != nil {
		return nil, err
	}
	defer h.destroy(ctx, sb.ID)
	found, err := h.svc.Languages(ctx, sb.ID)
	if err != nil {
		return nil, err
	}
	list := []runtime{}
	for _, l := range found {
		list = append(list, runtime{l.Name, version(l.Version), append([]string{}, l.Aliases...)})
	}
	h.lists.put(owner.ID, list)
	return list, nil
}

// destroy ends a sandbox, also when the client has gone.
func (h *Handler) destroy(ctx context.Context, id string) {
	ctx, cancel := compat.Cleanup(ctx)
	defer cancel()
	if _, err := h.svc.Destroy(ctx, id, true); err != nil {
		h.log.Warn("the sandbox of an execution is left; it ends with its time limit", "sandbox", id, "err", err)
	}
}

var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+){0,2}`)

// version returns the version that a program reports as three numbers.
func version(reported string) string {
	v := numbers.FindString(reported)
	if v == "" {
		v = "0"
	}
	for strings.Count(v, ".") < 2 {
		v += ".0"
	}
	return v
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

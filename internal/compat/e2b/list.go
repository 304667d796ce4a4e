package e2b

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// query is a client's request for a list.
type query struct {
	metadata map[string]string
	states   []string
	oldest   bool // first
	after    time.Time
	template string
	limit    int
	from     string // token of the page
}

// maxPage is the highest number of entries on one page; it is also the default.
const maxPage = 100

func readQuery(v url.Values) (q query, err error) {
	q = query{states: []string{running, paused}, template: v.Get("template"), limit: maxPage, from: v.Get("nextToken")}
	if q.metadata, err = readMetadata(v.Get("metadata")); err != nil {
		return q, err
	}
	if given := v["state"]; len(given) > 0 {
		q.states = strings.Split(strings.Join(given, ","), ",")
	}
	for _, state := range q.states {
		if state != running && state != paused {
			return q, badQuery("state", state)
		}
	}
	switch order := v.Get("order"); order {
	case "", "desc":
	case "asc":
		q.oldest = true
	default:
		return q, badQuery("order", order)
	}
	if text := v.Get("startedAfter"); text != "" {
		if q.after, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, badQuery("startedAfter", text)
		}
	}
	q.limit, err = readLimit(v)
	return q, err
}

func readLimit(v url.Values) (int, error) {
	text := v.Get("limit")
	if text == "" {
		return maxPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, badQuery("limit", text)
	}
	return min(n, maxPage), nil
}

func badQuery(name, value string) error {
	return hutch.Errorf(hutch.Invalid, "the parameter %s cannot be %.100q", name, value).Naming(hutch.AboutField, name)
}

// readMetadata reads pairs that clients escape three times: each name and value, then the whole as a form, and then the
// form as a parameter. The last escape is already undone.
func readMetadata(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	whole, err := url.QueryUnescape(text)
	if err != nil {
		return nil, badQuery("metadata", text)
	}
	pairs := map[string]string{}
	for pair := range strings.SplitSeq(whole, "&") {
		k, v, _ := strings.Cut(pair, "=")
		name, bad := url.QueryUnescape(k)
		value, worse := url.QueryUnescape(v)
		if bad != nil || worse != nil {
			return nil, badQuery("metadata", text)
		}
		if strings.HasPrefix(name, labelPrefix) {
			return nil, badQuery("metadata", name)
		}
		pairs[name] = value
	}
	return pairs, nil
}

// chosen returns all sandboxes that match a query, in the query's order.
func (s *Server) chosen(r *http.Request, q query) ([]listed, error) {
	all, err := s.svc.Sandboxes(r.Context(), hutch.Filter{Labels: q.metadata, Brief: true})
	if err != nil {
		return nil, err
	}
	kept := []listed{}
	for _, sb := range all {
		l := list(sb)
		if slices.Contains(q.states, l.State) && !l.StartedAt.Before(q.after) && (q.template == "" || l.TemplateID == q.template || sb.Template == q.template) {
			kept = append(kept, l)
		}
	}
	slices.SortFunc(kept, func(a, b listed) int {
		order := cmp.Compare(placeOf(a), placeOf(b))
		if q.oldest {
			return order
		}
		return -order
	})
	return kept, nil
}

// placeOf returns a text that sorts sandboxes by their start, and then by their id.
func placeOf(l listed) string {
	return l.StartedAt.Format("20060102150405.000000000") + " " + l.SandboxID
}

func (s *Server) listV1(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	if !r.URL.Query().Has("state") {
		q.states = []string{running}
	}
	all, err := s.chosen(r, q)
	return http.StatusOK, all, err
}

func (s *Server) listV2(w http.ResponseWriter, r *http.Request) (int, any, error) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	all, err := s.chosen(r, q)
	if err != nil {
		return 0, nil, err
	}
	live := 0
	for _, l := range all {
		if l.State == running {
			live++
		}
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(live))
	page, err := pageOf(w, all, q.from, q.limit, q.oldest, placeOf)
	return http.StatusOK, page, err
}

// pageOf returns the page after a token, and sets a header with the token of the next page. A token contains the place
// of the last element of its page, so elements that disappear between two calls do not shift the others.
func pageOf[T any](w http.ResponseWriter, all []T, from string, limit int, rising bool, place func(T) string) ([]T, error) {
	if from != "" {
		last, err := base64.RawURLEncoding.DecodeString(from)
		if err != nil {
			return nil, badQuery("nextToken", from)
		}
		i := slices.IndexFunc(all, func(x T) bool {
			if rising {
				return place(x) > string(last)
			}
			return place(x) < string(last)
		})
		if i < 0 {
			i = len(all)
		}
		all = all[i:]
	}
	if len(all) > limit {
		all = all[:limit]
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(place(all[limit-1]))))
	}
	return all, nil
}

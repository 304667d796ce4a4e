package rest

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// maxPage is the highest number of sandboxes in one answer.
const maxPage = 1000

// page is a part of a list of sandboxes. The list is ordered by creation time and then by id. The cursor is the
// position of the last sandbox that was sent, and stays valid when that sandbox is destroyed.
type page struct {
	limit int // 0 means all
	after place
}

type place struct {
	created time.Time
	id      string
}

func placeOf(s hutch.Sandbox) place { return place{s.CreatedAt, s.ID} }

func (p place) compare(q place) int {
	if c := p.created.Compare(q.created); c != 0 {
		return c
	}
	return strings.Compare(p.id, q.id)
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.created.UnixNano(), 36) + "." + p.id))
}

func parsePlace(s string) (place, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	created, id, ok := strings.Cut(string(b), ".")
	nano, perr := strconv.ParseInt(created, 36, 64)
	return place{time.Unix(0, nano), id}, err == nil && perr == nil && ok && hutch.CheckID(id) == nil
}

func pageOf(q url.Values) (p page, err error) {
	if v := q.Get("limit"); v != "" {
		if p.limit, err = strconv.Atoi(v); err != nil || p.limit < 1 || p.limit > maxPage {
			return p, hutch.Errorf(hutch.Invalid, "the parameter limit is %.80q: give 1 to %d, or leave it out for all", v, maxPage).Naming(hutch.AboutField, "limit")
		}
	}
	if v := q.Get("cursor"); v != "" {
		var ok bool
		if p.after, ok = parsePlace(v); !ok {
			return p, hutch.Errorf(hutch.Invalid, "the cursor %.80q is not from this list: use the one in the Link header of the previous answer", v).Naming(hutch.AboutField, "cursor")
		}
	}
	return p, nil
}

// cut returns the page's part of a list, and the cursor of the next page; "" after the last page.
func (p page) cut(list []hutch.Sandbox) (part []hutch.Sandbox, next string) {
	slices.SortFunc(list, func(a, b hutch.Sandbox) int { return placeOf(a).compare(placeOf(b)) })
	first := 0
	if p.after.id != "" {
		first, _ = slices.BinarySearchFunc(list, p.after, func(s hutch.Sandbox, at place) int {
			if placeOf(s).compare(at) <= 0 {
				return -1
			}
			return 1
		})
	}
	list = list[first:]
	if p.limit == 0 || len(list) <= p.limit {
		return list, ""
	}
	return list[:p.limit], placeOf(list[p.limit-1]).String()
}

// linkNext adds a header with the URL of the next page, as in RFC 8288.
func linkNext(w http.ResponseWriter, r *http.Request, cursor string) {
	if cursor == "" {
		return
	}
	q := r.URL.Query()
	q.Set("cursor", cursor)
	w.Header().Set("Link", "<"+r.URL.EscapedPath()+"?"+q.Encode()+`>; rel="next"`)
}

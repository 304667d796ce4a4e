package rest

import (
	"net/http"
	"strconv"
	"strings"

	"hutch"
)

// readTimeline answers with entries or, for a client that asks for events, with new entries as they come.
func (h *Handler) readTimeline(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "after", "before", "id", "since", "until", "kind", "text", "limit")
	q := hutch.TimelineQuery{
		After: p.number("after"), Before: p.number("before"), ID: p.number("id"), Since: p.moment("since"), Until: p.moment("until"),
		Text: p.Get("text"), Limit: int(p.number("limit")), Follow: wantsEvents(r),
	}
	for kind := range strings.SplitSeq(p.Get("kind"), ",") {
		if kind != "" {
			q.Kinds = append(q.Kinds, hutch.TimelineKind(kind))
		}
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" && q.Follow { // from a client that reconnects
		if n, err := strconv.ParseInt(last, 10, 64); err == nil {
			q.After = n
		}
	}
	switch {
	case p.err != nil:
		h.fail(w, r, p.err)
	case q.Follow:
		h.followTimeline(w, r, q)
	default:
		page := hutch.TimelinePage{Entries: []hutch.TimelineEntry{}, Next: q.After}
		err := h.timeline.Timeline(r.Context(), r.PathValue("id"), q, func(e hutch.TimelineEntry) error {
			page.Entries, page.Next = append(page.Entries, e), e.Cursor
			return nil
		})
		reply(h, w, r)(page, err)
	}
}

func (h *Handler) followTimeline(w http.ResponseWriter, r *http.Request, q hutch.TimelineQuery) {
	es := h.events(w, r)
	defer es.Close()
	err := h.timeline.Timeline(r.Context(), r.PathValue("id"), q, func(e hutch.TimelineEntry) error {
		return es.send(strconv.FormatInt(e.Cursor, 10), "entry", e)
	})
	if err != nil {
		es.fail(h.describe(r, err))
	}
}

package rest

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/httpio"
)

func (h *Handler) pool(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.pools.Pool(r.Context()))
}

func (h *Handler) checkpointAll(w http.ResponseWriter, r *http.Request) {
	es := h.events(w, r)
	defer es.Close()
	if err := h.checkpoints.CheckpointAll(r.Context(), func(c hutch.Checkpoint) error { return es.send("", "checkpoint", c) }); err != nil {
		es.fail(h.describe(r, err))
	}
}

func (h *Handler) examine(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.examiner.Examine(r.Context()))
}

func (h *Handler) verifyAudit(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "head")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h, w, r)(h.examiner.VerifyAudit(r.Context(), q.Get("head")))
}

func (h *Handler) listOwners(w http.ResponseWriter, r *http.Request) {
	list, err := h.owners.Owners(r.Context())
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) deleteOwner(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.owners.DeleteOwner(r.Context(), r.PathValue("owner")))
}

func (h *Handler) usage(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.accounts.Usage(r.Context()))
}

func (h *Handler) usageHistory(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "from", "to", "by")
	q := hutch.UsageQuery{From: p.Get("from"), To: p.Get("to")}
	for name := range strings.SplitSeq(p.Get("by"), ",") {
		if name != "" {
			q.By = append(q.By, hutch.UsageGroup(name))
		}
	}
	if p.err != nil {
		h.fail(w, r, p.err)
		return
	}
	reply(h, w, r)(h.accounts.UsageHistory(r.Context(), q))
}

// stats answers with the current use of sandboxes or, to a client that accepts events, with reports from now on.
func (h *Handler) stats(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "interval")
	req := hutch.StatsRequest{Follow: wantsEvents(r), Interval: p.seconds("interval")}
	if p.err != nil {
		h.fail(w, r, p.err)
		return
	}
	if req.Follow {
		h.followStats(w, r, req)
		return
	}
	var report hutch.StatsReport
	err := h.accounts.Stats(r.Context(), req, func(now hutch.StatsReport) error { report = now; return nil })
	reply(h, w, r)(report, err)
}

func (h *Handler) statsHistory(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "since", "until", "step")
	q := hutch.StatsQuery{Since: p.moment("since"), Until: p.moment("until"), Step: p.seconds("step")}
	if p.err != nil {
		h.fail(w, r, p.err)
		return
	}
	reply(h, w, r)(h.histories.StatsHistory(r.Context(), r.PathValue("id"), q))
}

func (h *Handler) followStats(w http.ResponseWriter, r *http.Request, req hutch.StatsRequest) {
	es := h.events(w, r)
	defer es.Close()
	if err := h.accounts.Stats(r.Context(), req, func(now hutch.StatsReport) error { return es.send("", "stats", now) }); err != nil {
		es.fail(h.describe(r, err))
		return
	}
	es.send("", "end", struct{}{})
}

// auditLog sends records as lines of JSON while it reads them.
func (h *Handler) auditLog(w http.ResponseWriter, r *http.Request) {
	p := paramsOf(r, "since", "until", "token", "owner", "sandbox", "verb", "result", "after", "limit", "running", "follow")
	q := audit.Query{
		Since: p.moment("since"), Until: p.moment("until"), Token: p.Get("token"), Owner: p.Get("owner"), Sandbox: p.Get("sandbox"),
		Verb: p.Get("verb"), Result: p.Get("result"), After: p.number("after"), Limit: int(p.number("limit")), Running: p.flag("running"),
	}
	follow := p.flag("follow")
	if p.err != nil {
		h.fail(w, r, p.err)
		return
	}
	l := newLines(h.writer(w, r), follow)
	read := h.audit.Query
	if follow {
		read = h.audit.Follow
	}
	err := read(r.Context(), q, l.add)
	switch {
	case err == nil:
		l.end()
	case !l.begun:
		h.fail(w, r, err)
	default:
		h.describe(r, err) // for the log; the client must see a broken answer
		panic(http.ErrAbortHandler)
	}
}

func (p *params) moment(name string) time.Time {
	at, err := moment(p.Values, name)
	if p.err == nil {
		p.err = err
	}
	return at
}

// lines is an answer with one JSON value a line. If it is live, each line is sent at once, otherwise several together.
type lines struct {
	w     *httpio.Writer
	buf   *bufio.Writer
	live  bool
	begun bool
}

func newLines(w *httpio.Writer, live bool) *lines {
	return &lines{w: w, buf: bufio.NewWriterSize(w, chunk), live: live}
}

func (l *lines) begin() {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/jsonl")
		l.w.Header().Set("Cache-Control", "no-store")
	}
}

func (l *lines) add(r audit.Record) error {
	l.begin()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.buf.Write(b)
	if err := l.buf.WriteByte('\n'); err != nil || !l.live {
		return err
	}
	return l.flush()
}

func (l *lines) flush() error {
	if err := l.buf.Flush(); err != nil {
		return err
	}
	return l.w.FlushError()
}

func (l *lines) end() {
	l.begin()
	l.flush() // an error means that the client has disconnected
}

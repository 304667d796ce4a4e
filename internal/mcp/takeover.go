package mcp

import (
	"bytes"
	"context"
	"errors"
	"hutch/internal/caller"
	"net/http"
	"strings"
	"time"
)

// A client of the older revisions that lost its connection reconnects with a GET and Last-Event-ID. The server may not
// know that the old connection is dead, because a failed network sends nothing. So the new connection takes the stream
// over, and the old one is cut. The SDK by itself would refuse the new connection.

var errTakenOver = errors.New("another connection took the stream over")

// takeoverTime is how long the old connection can take to end.
const takeoverTime = 5 * time.Second

// expectTakeover registers a as an answer of a session, and returns the request with a context that ends at a takeover.
func (a *answer) expectTakeover(r *http.Request, who *caller.Principal) *http.Request {
	ctx, cancel := context.WithCancel(r.Context())
	a.session, a.caller, a.hangUp = r.Header.Get(headerSession), callerOf(who), cancel
	return r.WithContext(ctx)
}

func callerOf(who *caller.Principal) string {
	if who == nil {
		return ""
	}
	return who.ID
}

// noteStream reads the answer's stream from the id of an event, which consists of the stream and a number.
func (a *answer) noteStream(event []byte) {
	if a.session == "" || a.stream.Load() != nil {
		return
	}
	for line := range bytes.Lines(event[:min(len(event), 500)]) {
		if id, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
			stream := streamOf(strings.TrimSpace(string(id)))
			a.stream.Store(&stream)
			return
		}
	}
}

// streamOf returns the stream in an event's id.
func streamOf(event string) string { return event[:max(0, strings.LastIndexByte(event, '_'))] }

// takeOver handles a request to continue a stream: it cuts the stream's old connection, if that belongs to the same
// session and caller, and waits for its end.
func (h *Handler) takeOver(a *answer, r *http.Request) {
	stream := streamOf(r.Header.Get("Last-Event-Id"))
	if r.Method != http.MethodGet || stream == "" || a.session == "" {
		return
	}
	h.answers.byID.Range(func(_, v any) bool {
		old := v.(*answer)
		if has := old.stream.Load(); old == a || has == nil || *has != stream || old.session != a.session || old.caller != a.caller {
			return true
		}
		old.cut.Store(true)
		old.hangUp()
		http.NewResponseController(old.ResponseWriter).SetWriteDeadline(time.Now())
		select {
		case <-old.done:
		case <-time.After(takeoverTime):
		case <-r.Context().Done():
		}
		return false
	})
}

package rest

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/httpio"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// wantsEvents reports whether the client asks for server-sent events.
func wantsEvents(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && t == httpio.EventStream {
			return true
		}
	}
	return false
}

// events sends server-sent events. The answer begins with the first event or ping
// comment. An error before that is answered with its own status.
type events struct {
	*httpio.Events
	w *httpio.Writer
}

func (h *Handler) events(w http.ResponseWriter, r *http.Request) events {
	hw := h.writer(w, r)
	return events{httpio.NewEvents(hw, pingTime), hw}
}

// output sends a piece of output.
func (es events) output(o hutch.Output) error {
	return es.send(strconv.FormatInt(o.Cursor, 10), string(o.Stream), stream.NewPiece(o))
}

// fail ends the answer with an error: as an event or, if nothing was sent yet, with its own status as in other calls.
func (es events) fail(d problem.Details) {
	es.Close()
	if es.Begun() {
		es.send("", "error", d)
		return
	}
	d.Write(es.w)
}

// send sends one event.
func (es events) send(id, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if es.Send(id, name, data) != nil {
		return errGone
	}
	return nil
}

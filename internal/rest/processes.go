package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"hutch"
	"hutch/internal/httpio"
	"hutch/internal/stream"
)

func (h *Handler) startProcess(r *http.Request, req hutch.ProcessRequest) (hutch.Process, error) {
	return h.svc.StartProcess(r.Context(), r.PathValue("id"), req)
}

func (h *Handler) processes(w http.ResponseWriter, r *http.Request) {
	list, err := h.svc.Processes(r.Context(), r.PathValue("id"))
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) process(w http.ResponseWriter, r *http.Request) {
	reply(h, w, r)(h.svc.Process(r.Context(), r.PathValue("id"), r.PathValue("process")))
}

func (h *Handler) signal(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Signal int `json:"signal"`
	}
	err := h.body(w, r, &body)
	if err == nil {
		err = h.svc.Signal(r.Context(), r.PathValue("id"), r.PathValue("process"), body.Signal)
	}
	h.done(w, r, err)
}

// logs answers with the output of a background process: the output so far. Clients that ask for events or a WebSocket
// also get later output.
func (h *Handler) logs(w http.ResponseWriter, r *http.Request) {
	req, err := logsRequest(r)
	switch {
	case err != nil:
		h.fail(w, r, err)
	case wantsSocket(r):
		h.logSocket(w, r, req)
	case wantsEvents(r):
		h.logEvents(w, r, req)
	case req.Follow:
		h.fail(w, r, hutch.Errorf(hutch.Invalid, "follow needs a stream: ask for it with Accept: %s, or connect with a WebSocket client", httpio.EventStream))
	default:
		h.logWhole(w, r, req)
	}
}

func logsRequest(r *http.Request) (hutch.LogsRequest, error) {
	req := hutch.LogsRequest{SandboxID: r.PathValue("id"), ProcessID: r.PathValue("process")}
	q, err := query(r, "cursor", "follow", "since", "timestamps")
	if err != nil {
		return req, err
	}
	if req.Follow, err = flag(q, "follow"); err != nil {
		return req, err
	}
	if req.Times, err = flag(q, "timestamps"); err != nil {
		return req, err
	}
	if req.Since, err = moment(q, "since"); err != nil {
		return req, err
	}
	req.Cursor, err = cursorOf(r, q)
	return req, err
}

// cursorOf returns the position from which a client wants to continue; 0 by default.
func cursorOf(r *http.Request, q url.Values) (int64, error) {
	text := r.Header.Get("Last-Event-ID") // sent by a client that reconnects
	if text == "" {
		text = q.Get("cursor")
	}
	if text == "" {
		return 0, nil
	}
	cursor, err := strconv.ParseInt(text, 10, 64)
	if err != nil || cursor < 0 {
		return 0, hutch.Errorf(hutch.Invalid, "the cursor is %.80q: give a number of bytes, from 0", text)
	}
	return cursor, nil
}

// logSocket sends raw output, which is several times as fast as events.
func (h *Handler) logSocket(w http.ResponseWriter, r *http.Request, req hutch.LogsRequest) {
	h.look(w, r, req, func(ctx context.Context, s *socket, cancel context.CancelCauseFunc) (any, error) {
		s.tasks.Go(func() { cancel(s.awaitClose()) })
		cursor, err := h.svc.Logs(ctx, req, s.output)
		return stream.Note{End: &stream.End{Cursor: cursor}}, err
	})
}

// awaitClose reads until the connection ends, from a client that should send nothing.
func (s *socket) awaitClose() error {
	if _, _, err := s.conn.Reader(s.ctx); err != nil {
		return errGone
	}
	return hutch.Errorf(hutch.Invalid, "this WebSocket sends logs and takes no messages: write to the process at input or terminal")
}

func (h *Handler) logEvents(w http.ResponseWriter, r *http.Request, req hutch.LogsRequest) {
	es := h.events(w, r)
	defer es.Close()
	cursor, err := h.svc.Logs(r.Context(), req, es.output)
	if err != nil {
		es.fail(h.describe(r, err))
		return
	}
	es.send(strconv.FormatInt(cursor, 10), "end", stream.End{Cursor: cursor})
}

// maxLogs bounds one answer in bytes; its cursor says where to continue.
const maxLogs = 4 << 20

var errFull = errors.New("the answer is full")

func (h *Handler) logWhole(w http.ResponseWriter, r *http.Request, req hutch.LogsRequest) {
	var all []hutch.Output
	size, last := 0, req.Cursor
	cursor, err := h.svc.Logs(r.Context(), req, func(o hutch.Output) error {
		all = appendOutput(all, o)
		last = o.Cursor
		if size += len(o.Data); size >= maxLogs {
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		cursor, err = last, nil
	}
	body := stream.Logs{Output: make([]stream.Piece, len(all)), Cursor: cursor}
	for i, o := range all {
		body.Output[i] = stream.NewPiece(o)
	}
	reply(h, w, r)(body, err)
}

// appendOutput adds o to the list. If o continues the last output of the list and has the same time, the two are
// joined, so that characters are not split.
func appendOutput(all []hutch.Output, o hutch.Output) []hutch.Output {
	if n := len(all); n > 0 && all[n-1].Stream == o.Stream && o.Lost == 0 && all[n-1].Time.Equal(o.Time) {
		all[n-1].Data = append(all[n-1].Data, o.Data...)
		all[n-1].Cursor = o.Cursor
		all[n-1].Redacted = all[n-1].Redacted || o.Redacted
		return all
	}
	o.Data = append([]byte(nil), o.Data...)
	return append(all, o)
}

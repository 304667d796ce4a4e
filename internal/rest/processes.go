package rest

import (
	"errors"
	"net/http"
	"strconv"

	"hutch"
	"hutch/internal/stream"
)

func (h *Handler) startProcess(w http.ResponseWriter, r *http.Request) {
	var req hutch.ProcessRequest
	if err := h.body(w, r, &req); err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h, w, r)(h.svc.StartProcess(r.Context(), r.PathValue("id"), req))
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
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// logs answers with the output of a background process: what there is, or as
// events, also what is still to come.
func (h *Handler) logs(w http.ResponseWriter, r *http.Request) {
	req, err := logsRequest(r)
	switch {
	case err != nil:
		h.fail(w, r, err)
	case wantsEvents(r):
		h.logEvents(w, r, req)
	case req.Follow:
		h.fail(w, r, hutch.Errorf(hutch.Invalid, "follow needs a stream: ask for it with Accept: %s", eventStream))
	default:
		h.logWhole(w, r, req)
	}
}

func logsRequest(r *http.Request) (hutch.LogsRequest, error) {
	req := hutch.LogsRequest{SandboxID: r.PathValue("id"), ProcessID: r.PathValue("process")}
	q, err := query(r, "cursor", "follow")
	if err != nil {
		return req, err
	}
	if req.Follow, err = flag(q, "follow"); err != nil {
		return req, err
	}
	cursor := r.Header.Get("Last-Event-ID") // of a client that reconnects
	if cursor == "" {
		cursor = q.Get("cursor")
	}
	if cursor == "" {
		return req, nil
	}
	if req.Cursor, err = strconv.ParseInt(cursor, 10, 64); err != nil || req.Cursor < 0 {
		return req, hutch.Errorf(hutch.Invalid, "the cursor is %.80q: it counts bytes from 0", cursor)
	}
	return req, nil
}

func (h *Handler) logEvents(w http.ResponseWriter, r *http.Request, req hutch.LogsRequest) {
	es := h.events(w)
	defer es.stop()
	cursor, err := h.svc.Logs(r.Context(), req, es.output)
	if err != nil {
		es.fail(h.describe(r, err))
		return
	}
	es.send(strconv.FormatInt(cursor, 10), "end", stream.End{Cursor: cursor})
}

// maxLogs bounds one answer, in bytes; its cursor tells where to go on.
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

// appendOutput adds o to the last output where it goes on from that, so that
// text is not torn apart within a character.
func appendOutput(all []hutch.Output, o hutch.Output) []hutch.Output {
	if n := len(all); n > 0 && all[n-1].Stream == o.Stream && o.Lost == 0 {
		all[n-1].Data = append(all[n-1].Data, o.Data...)
		all[n-1].Cursor = o.Cursor
		return all
	}
	o.Data = append([]byte(nil), o.Data...)
	return append(all, o)
}

package rest

import (
	"net/http"
	"strconv"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

func (h *Handler) createContext(r *http.Request, req hutch.ContextRequest) (hutch.CodeContext, error) {
	return h.svc.CreateContext(r.Context(), r.PathValue("id"), req)
}

func (h *Handler) contexts(w http.ResponseWriter, r *http.Request) {
	list, err := h.svc.Contexts(r.Context(), r.PathValue("id"))
	reply(h, w, r)(orEmpty(list), err)
}

func (h *Handler) deleteContext(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.svc.DeleteContext(r.Context(), r.PathValue("id"), r.PathValue("context")))
}

func (h *Handler) interrupt(w http.ResponseWriter, r *http.Request) {
	h.done(w, r, h.svc.Interrupt(r.Context(), r.PathValue("id"), r.PathValue("context")))
}

// runCode runs code in a context and answers with the result or, if the client accepts events, with events while the
// code runs.
func (h *Handler) runCode(w http.ResponseWriter, r *http.Request) {
	req, err := h.runRequest(w, r)
	switch {
	case err != nil:
		h.fail(w, r, err)
	case wantsEvents(r):
		h.runEvents(w, r, req)
	default:
		res, err := h.svc.RunCode(r.Context(), r.PathValue("id"), req, nil)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.report(w, r, res)
	}
}

func (h *Handler) runRequest(w http.ResponseWriter, r *http.Request) (hutch.RunRequest, error) {
	var body stream.Run
	if err := h.body(w, r, &body); err != nil {
		return hutch.RunRequest{}, err
	}
	if body.Open {
		return hutch.RunRequest{}, hutch.Errorf(hutch.Invalid, "openStdin is for a WebSocket: give stdin, or connect with a WebSocket client").Naming(hutch.AboutField, "openStdin")
	}
	return runIn(r, body)
}

// runIn returns the run that a body asks for, in the context named in the path.
func runIn(r *http.Request, body stream.Run) (hutch.RunRequest, error) {
	id := r.PathValue("context")
	if id != "" && body.ContextID != "" && body.ContextID != id {
		return hutch.RunRequest{}, hutch.Errorf(hutch.Invalid, "the path names the context %.80q and the body %.80q: leave contextId out of the body", id, body.ContextID).Naming(hutch.AboutField, "contextId")
	}
	if id != "" {
		body.ContextID = id
	}
	return body.Request()
}

func (h *Handler) runEvents(w http.ResponseWriter, r *http.Request, req hutch.RunRequest) {
	es := h.events(w, r)
	defer es.Close()
	res, err := h.svc.RunCode(r.Context(), r.PathValue("id"), req, func(e hutch.RunEvent) error {
		switch {
		case e.Output != nil:
			return es.send(strconv.FormatInt(e.Output.Cursor, 10), string(e.Output.Stream), stream.NewPiece(*e.Output))
		case e.Result != nil:
			return es.send("", "result", e.Result)
		case e.Input != nil:
			return es.send("", "input", e.Input)
		default:
			return es.send("", "exception", e.Error)
		}
	})
	if err != nil {
		es.fail(h.describe(r, err))
		return
	}
	es.send("", "end", res)
}

// runSocket runs code for the client at the other end of a WebSocket, which can answer when the code asks for input.
// Package stream specifies the messages.
func (h *Handler) runSocket(w http.ResponseWriter, r *http.Request) {
	h.attend(w, r, h.serveRun)
}

func (h *Handler) serveRun(s *socket, r *http.Request) any {
	req, err := s.run(r)
	if err != nil {
		d := problem.New(err)
		return stream.RunNote{Error: &d}
	}
	ctx, cancel := s.begin(r)
	defer cancel(nil)
	res, err := h.svc.RunCode(ctx, r.PathValue("id"), req, s.event)
	if err == nil {
		return stream.RunNote{End: &res}
	}
	d := h.describe(r, named(ctx, err))
	return stream.RunNote{Error: &d}
}

// run reads the first message, which asks for a run of code.
func (s *socket) run(r *http.Request) (hutch.RunRequest, error) {
	var body stream.Run
	if err := s.first(&body); err != nil {
		return hutch.RunRequest{}, err
	}
	req, err := runIn(r, body)
	if err == nil && body.Open {
		req.Stdin = s.openStdin()
	}
	return req, err
}

// event sends an event of a run.
func (s *socket) event(e hutch.RunEvent) error {
	if e.Output != nil {
		return s.output(*e.Output)
	}
	if s.sendText(stream.RunNote{Result: e.Result, Exception: e.Error, Input: e.Input}) != nil {
		return errGone
	}
	return nil
}

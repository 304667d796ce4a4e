package coding

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
	"hutch/internal/httpio"
	"hutch/internal/problem"
)

// Prefix is below what [NewHandler] answers.
const Prefix = "/agents"

// writeTime is how long a client can take to read a piece of an answer.
const writeTime = time.Minute

type handler struct{ svc Service }

// NewHandler returns the API of coding agents:
//
//	POST /agents                  an AgentRequest: begins a session
//	POST /agents/{session}        an AgentPrompt
//	GET  /agents/{session}        follows the last prompt again
//	POST /agents/{session}/stop   ends the agent, and keeps its session
//
// The answer is an AgentResult, when the agent has ended or, with Accept text/event-stream, events: session, with its id;
// event, an AgentEvent; and last end or error. The agent works on when the client leaves. What the API does is verbs
// of svc, so it gives a token no more than the verbs do.
func NewHandler(svc Service) http.Handler {
	mux := http.NewServeMux()
	for route, answer := range (&handler{svc}).routes() {
		mux.HandleFunc(route, answer)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(caller.WithSurface(r.Context(), "rest")))
	})
}

func (h *handler) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST " + Prefix:                     h.open,
		"POST " + Prefix + "/{session}":      h.prompt,
		"GET " + Prefix + "/{session}":       h.follow,
		"POST " + Prefix + "/{session}/stop": h.stop,
	}
}

// Routes are what [NewHandler] answers, each a method and a path: api/openapi.yaml is held to them.
func Routes() []string { return slices.Sorted(maps.Keys((&handler{}).routes())) }

// body reads the JSON of a request. An unknown field is an error.
func body(w http.ResponseWriter, r *http.Request, to any) error {
	b, err := compat.ReadBody(w, r)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err = dec.Decode(to)
	if err == nil && dec.More() {
		err = errors.New("there is something behind it")
	}
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the body cannot be read as JSON: %.300s", err.Error())
	}
	return nil
}

func (h *handler) open(w http.ResponseWriter, r *http.Request) {
	var req hutch.AgentRequest
	err := body(w, r, &req)
	if err == nil {
		err = req.Check()
	}
	d, derr := given(cmp.Or(req.Agent, "claude"), req.Definition)
	if err = cmp.Or(err, derr); err != nil {
		problem.Write(w, err)
		return
	}
	h.answer(w, r, req.Detach, func(ctx context.Context) (*Session, string, error) {
		return Begin(ctx, h.svc, d, hutch.CreateRequest{
			Image: req.Image, Runtime: req.Runtime, Env: req.Env, Network: req.Network, Limits: req.Limits, Timeout: req.Keep,
		}, Repository{GitCloneRequest: req.Repository}, req.Prompt, req.Timeout.Duration())
	})
}

// given is the definition of a request: its own, or the one of that name.
func given(name, text string) (Definition, error) {
	switch {
	case text != "":
		return ParseDefinition([]byte(text))
	case name != "":
		return Named(name)
	}
	return Definition{}, nil
}

func (h *handler) prompt(w http.ResponseWriter, r *http.Request) {
	var p hutch.AgentPrompt
	err := body(w, r, &p)
	if err == nil {
		err = p.Check()
	}
	d, derr := given("", p.Definition)
	if err = cmp.Or(err, derr); err != nil {
		problem.Write(w, err)
		return
	}
	h.answer(w, r, p.Detach, func(ctx context.Context) (*Session, string, error) {
		s, err := Find(ctx, h.svc, r.PathValue("session"), d)
		if err != nil {
			return nil, "", err
		}
		process, err := s.Start(ctx, p.Prompt, p.Timeout.Duration())
		return s, process, err
	})
}

// follow reads a definition from the query, because a GET has no body.
func (h *handler) follow(w http.ResponseWriter, r *http.Request) {
	d, err := given("", r.URL.Query().Get("definition"))
	if err != nil {
		problem.Write(w, err)
		return
	}
	h.answer(w, r, false, func(ctx context.Context) (*Session, string, error) {
		s, err := Find(ctx, h.svc, r.PathValue("session"), d)
		if err != nil {
			return nil, "", err
		}
		p, err := s.Last(ctx)
		return s, p.ID, err
	})
}

func (h *handler) stop(w http.ResponseWriter, r *http.Request) {
	s, err := Find(r.Context(), h.svc, r.PathValue("session"), Definition{})
	if err == nil {
		err = s.Stop(r.Context())
	}
	if err != nil {
		problem.Write(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answer begins a prompt or finds one, and follows it.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, detach bool, begin func(context.Context) (*Session, string, error)) {
	hw := httpio.NewWriter(w, r, writeTime)
	es := httpio.NewEvents(hw, 15*time.Second)
	defer es.Close()
	streams := wantsEvents(r)
	if !streams {
		es.Close() // a comment would begin an answer of another type
	}
	s, process, err := begin(r.Context())
	var res hutch.AgentResult
	if err == nil {
		res = hutch.AgentResult{SandboxID: s.ID, Agent: s.definition.Name}
		if streams {
			err = send(es, "session", map[string]string{"sandboxId": s.ID, "agent": s.definition.Name})
		}
	}
	if err == nil && !detach {
		var show func(Event) error
		if streams {
			show = func(e Event) error { return send(es, "event", e) }
		}
		res, err = s.Follow(r.Context(), process, show)
	}
	switch {
	case err != nil && es.Begun():
		es.Close()
		send(es, "error", problem.New(err))
	case err != nil:
		es.Close()
		problem.Write(w, err)
	case streams:
		send(es, "end", res)
	default:
		hw.Header().Set("Content-Type", "application/json")
		hw.Header().Set("Cache-Control", "no-store")
		json.NewEncoder(hw).Encode(res) // an error here is a client that has gone
	}
}

func send(es *httpio.Events, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return es.Send("", name, data)
}

// wantsEvents reports whether the client asks for server-sent events.
func wantsEvents(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && t == httpio.EventStream {
			return true
		}
	}
	return false
}

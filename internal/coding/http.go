package coding

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	"hutch/internal/jsonfault"
	"hutch/internal/problem"
)

// Prefix begins the paths of all routes of [NewHandler].
const Prefix = "/agents"

// writeTime is how long a client can take to read a piece of an answer.
const writeTime = time.Minute

// pingTime is the time between comments in an answer that has nothing else to say.
const pingTime = 15 * time.Second

type handler struct {
	svc  Service
	ping time.Duration
}

// Uploads reports whether a request's body has an archive, which is never held in memory.
func Uploads(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == Prefix || r.URL.Path == Prefix+"/tries") && isForm(r)
}

func isForm(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "multipart/form-data"
}

// NewHandler returns the API of coding agents:
//
//	POST /agents                  an AgentRequest: begins a session
//	POST /agents/{session}        an AgentPrompt
//	GET  /agents/{session}        follows the last prompt again
//	POST /agents/{session}/stop   ends the agent, and keeps its session
//	POST /agents/tries            an AgentRequest: begins several sessions
//	GET  /agents/{tries}/tries    follows them again
//
// The answer comes when the agents have ended: an AgentResult or, for several tries, AgentTries. With Accept
// text/event-stream the answer is a stream of events: session, with its id; event, an AgentEvent; and last end or
// error. The agents continue when the client disconnects. The API only calls verbs of svc, so a token can do no more
// here than with the verbs themselves.
//
// The body of a request that begins sessions is JSON, or a form with the parts request, in JSON, and archive, with the
// files.
func NewHandler(svc Service) http.Handler { return newHandler(svc, pingTime) }

func newHandler(svc Service, ping time.Duration) http.Handler {
	mux := http.NewServeMux()
	for route, answer := range (&handler{svc, ping}).routes() {
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
		"POST " + Prefix + "/tries":          h.try,
		"GET " + Prefix + "/{tries}/tries":   h.followTries,
	}
}

// Routes returns the routes of [NewHandler], each a method and a path. A test compares them with api/openapi.yaml.
func Routes() []string { return slices.Sorted(maps.Keys((&handler{}).routes())) }

// body reads the JSON of a request. An unknown field is an error.
func body(w http.ResponseWriter, r *http.Request, to any) error {
	b, err := compat.ReadBody(w, r)
	if err != nil {
		return err
	}
	return decode(b, to)
}

func decode(b []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err := dec.Decode(to)
	if err == nil && dec.More() {
		return hutch.Errorf(hutch.Invalid, "the body continues after the end of its JSON value: send one value")
	}
	if err != nil {
		return jsonfault.Explain(b, to, err)
	}
	return nil
}

// asked reads the request from a body in JSON, or from a form in which the archive follows the request.
func asked(w http.ResponseWriter, r *http.Request) (req hutch.AgentRequest, err error) {
	if !isForm(r) {
		return req, body(w, r, &req)
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return req, hutch.Errorf(hutch.Invalid, "the form in the body has no boundary").Because(err)
	}
	part, err := parts.NextPart()
	if err != nil || part.FormName() != "request" {
		return req, errors.Join(hutch.Errorf(hutch.Invalid, "the first part of the form must be request, with the JSON of the request; the second is archive, with the files"), err)
	}
	budget := caller.From(r.Context()).Budget
	text, err := io.ReadAll(budget.Reader(io.LimitReader(part, compat.MaxRequest+1), compat.ErrNoRoom))
	switch {
	case errors.Is(err, hutch.Exhausted):
		return req, err
	case err != nil:
		return req, errNotWhole(err)
	case len(text) > compat.MaxRequest:
		return req, compat.ErrTooLarge
	case !budget.TakeJSON(text):
		return req, compat.ErrNoRoom
	}
	if err := decode(text, &req); err != nil {
		return req, err
	}
	switch part, err = parts.NextPart(); {
	case errors.Is(err, io.EOF):
		return req, hutch.Errorf(hutch.Invalid, "the form has no part archive: add it, or send the request as JSON")
	case err != nil:
		return req, errNotWhole(err)
	case part.FormName() != "archive":
		return req, hutch.Errorf(hutch.Invalid, "the form has a part %.60q: after request comes archive", part.FormName())
	}
	req.Archive = arriving{part}
	return req, nil
}

// arriving is an archive that is still being received: its client can disconnect before the end.
type arriving struct{ part io.Reader }

func (a arriving) Read(b []byte) (int, error) {
	n, err := a.part.Read(b)
	if err != nil && err != io.EOF {
		err = errNotWhole(err)
	}
	return n, err
}

func errNotWhole(err error) error {
	return hutch.Errorf(hutch.Invalid, "the request's body did not arrive whole: send it again").Because(err)
}

// begin reads a request that begins sessions.
func begin(w http.ResponseWriter, r *http.Request, check func(hutch.AgentRequest) error) (req hutch.AgentRequest, t Task, err error) {
	if req, err = asked(w, r); err != nil {
		return req, t, err
	}
	if err = check(req); err != nil {
		return req, t, err
	}
	t = Task{
		Sandbox:    hutch.CreateRequest{Image: req.Image, Runtime: req.Runtime, Env: req.Env, Network: req.Network, Limits: req.Limits, Timeout: req.Keep},
		Repository: Repository{GitCloneRequest: req.Repository}, Prompt: req.Prompt, Timeout: req.Timeout.Duration(),
	}
	if req.Archive != nil {
		t.Repository = Repository{Unpack: FromArchive(req.Archive)}
	}
	t.Agent, err = given(cmp.Or(req.Agent, "claude"), req.Definition)
	return req, t, err
}

func (h *handler) open(w http.ResponseWriter, r *http.Request) {
	defer httpio.Duplex(w, r)() // an archive can arrive while comments are sent
	req, task, err := begin(w, r, hutch.AgentRequest.CheckOne)
	if err != nil {
		problem.Write(w, err)
		return
	}
	h.answer(w, r, req.Detach, func(ctx context.Context) (work, error) {
		s, process, err := Begin(ctx, h.svc, task)
		return one{s, process}, err
	})
}

func (h *handler) try(w http.ResponseWriter, r *http.Request) {
	defer httpio.Duplex(w, r)() // as in open
	req, task, err := begin(w, r, hutch.AgentRequest.CheckTries)
	if err != nil {
		problem.Write(w, err)
		return
	}
	h.answer(w, r, req.Detach, func(ctx context.Context) (work, error) {
		t, err := Try(ctx, h.svc, task, req.Tries)
		return several{t}, err
	})
}

func (h *handler) followTries(w http.ResponseWriter, r *http.Request) {
	d, err := given("", r.URL.Query().Get("definition"))
	if err != nil {
		problem.Write(w, err)
		return
	}
	h.answer(w, r, false, func(ctx context.Context) (work, error) {
		t, err := findTries(ctx, h.svc, r.PathValue("tries"), d)
		return several{t}, err
	})
}

// given returns the definition in a request, or the known definition that the request names.
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
	h.answer(w, r, p.Detach, func(ctx context.Context) (work, error) {
		s, err := Find(ctx, h.svc, r.PathValue("session"), d)
		if err != nil {
			return nil, err
		}
		process, err := s.Start(ctx, p.Prompt, p.Timeout.Duration())
		return one{s, process}, err
	})
}

// follow reads a definition from the query, because a GET has no body.
func (h *handler) follow(w http.ResponseWriter, r *http.Request) {
	d, err := given("", r.URL.Query().Get("definition"))
	if err != nil {
		problem.Write(w, err)
		return
	}
	h.answer(w, r, false, func(ctx context.Context) (work, error) {
		s, err := Find(ctx, h.svc, r.PathValue("session"), d)
		if err != nil {
			return nil, err
		}
		p, err := s.Last(ctx)
		return one{s, p.ID}, err
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

// work is what an answer follows: one agent, or several.
type work interface {
	// sessions are the answer before the agents have ended.
	sessions() []begunSession
	// begun is the result of a request that does not wait.
	begun() any
	follow(ctx context.Context, show func(Event) error) (any, error)
}

// begunSession is the data of an event of type session.
type begunSession struct {
	SandboxID string `json:"sandboxId"`
	Agent     string `json:"agent"`
	Tries     string `json:"tries,omitempty"` // the id of the tries
	Try       int    `json:"try,omitempty"`   // number among them, from 1
}

type one struct {
	*Session
	process string
}

func (o one) sessions() []begunSession {
	return []begunSession{{SandboxID: o.ID, Agent: o.definition.Name}}
}

func (o one) begun() any { return hutch.AgentResult{SandboxID: o.ID, Agent: o.definition.Name} }

func (o one) follow(ctx context.Context, show func(Event) error) (any, error) {
	return o.Follow(ctx, o.process, show)
}

type several struct{ *Tries }

func (s several) sessions() (list []begunSession) {
	for _, x := range s.list {
		list = append(list, begunSession{x.session.ID, x.session.definition.Name, s.ID, x.number})
	}
	return list
}

func (s several) begun() any { return s.Begun() }

func (s several) follow(ctx context.Context, show func(Event) error) (any, error) {
	return s.Follow(ctx, show)
}

// answer begins a prompt or finds one, and follows it.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, detach bool, begin func(context.Context) (work, error)) {
	hw := httpio.NewWriter(w, r, writeTime)
	es := httpio.NewEvents(hw, h.ping)
	defer es.Close()
	streams := wantsEvents(r)
	if !streams {
		es.Close() // a comment would begin an answer of another type
	}
	var res any
	found, err := begin(r.Context())
	if err == nil {
		res = found.begun()
		if streams {
			for _, s := range found.sessions() {
				err = cmp.Or(err, send(es, "session", s))
			}
		}
	}
	if err == nil && !detach {
		var show func(Event) error
		if streams {
			show = func(e Event) error { return send(es, "event", e) }
		}
		res, err = found.follow(r.Context(), show)
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
		json.NewEncoder(hw).Encode(res) // an error means that the client has disconnected
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

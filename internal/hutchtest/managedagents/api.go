// Package managedagents is the part of Anthropic's API for Claude Managed Agents that a self-hosted environment uses:
// the queue of work and the events of sessions, as in the sources of Anthropic's Go SDK (lib/environments). Tests take
// the role of the agent: they call tools and read the results.
package managedagents

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// API is one environment. Its methods are safe for concurrent use.
type API struct {
	Environment, Key string
	// TTL is the lease of a work item, in seconds, in answers to heartbeats; default 2.
	TTL int

	server *httptest.Server

	mu       sync.Mutex
	changed  chan struct{} // closed at each change, and replaced
	down     bool
	work     []*work
	sessions map[string]*session
	requests []Request
}

// Request is a request that arrived.
type Request struct {
	Method, Path, Worker string
}

// work is an item of the queue.
type work struct {
	id, session string
	state       string // queued, starting, active or stopped
	heartbeat   int    // number of the last heartbeat
	stolen      bool
}

// session is a session with its events.
type session struct {
	id, status string
	skills     map[string]string // name: text of SKILL.md
	events     []map[string]any
	memory     bool // a memory store is attached
}

// Result is a worker's result for a call of a tool.
type Result struct {
	Text  string
	Error bool
}

// New starts an API with one environment, which ends with the test.
func New(t testing.TB) *API {
	a := &API{Environment: "env_Test01", Key: "sk-ant-env-secret-of-the-test", TTL: 2, changed: make(chan struct{}), sessions: map[string]*session{}}
	mux := http.NewServeMux()
	for route, f := range map[string]func(http.ResponseWriter, *http.Request){
		"GET /v1/environments/{env}/work/poll":              a.poll,
		"POST /v1/environments/{env}/work/{work}/ack":       a.acknowledge,
		"POST /v1/environments/{env}/work/{work}/heartbeat": a.beat,
		"POST /v1/environments/{env}/work/{work}/stop":      a.stop,
		"GET /v1/sessions/{session}":                        a.getSession,
		"GET /v1/sessions/{session}/events":                 a.listEvents,
		"GET /v1/sessions/{session}/events/stream":          a.streamEvents,
		"POST /v1/sessions/{session}/events":                a.postEvents,
		"GET /v1/skills/{skill}/versions/{version}":         a.getSkill,
		"GET /v1/skills/{skill}/versions/{version}/content": a.downloadSkill,
	} {
		mux.HandleFunc(route, a.guarded(f))
	}
	a.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		a.server.CloseClientConnections() // ends streams that no worker has ended
		a.server.Close()
	})
	return a
}

// URL returns the API's base URL.
func (a *API) URL() string { return a.server.URL }

// guarded accepts only requests with the key of the environment, and no requests while the API is down.
func (a *API) guarded(f func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.requests = append(a.requests, Request{r.Method, r.URL.Path, r.Header.Get("Anthropic-Worker-ID")})
		down, key := a.down, a.Key
		a.mu.Unlock()
		switch env := r.PathValue("env"); {
		case down:
			panic(http.ErrAbortHandler) // the connection breaks
		case r.Header.Get("Authorization") != "Bearer "+key || r.Header.Get("X-Api-Key") != "":
			fail(w, http.StatusUnauthorized, "authentication_error", "invalid environment key")
		case env != "" && env != a.Environment:
			fail(w, http.StatusNotFound, "not_found_error", "no such environment")
		default:
			f(w, r)
		}
	}
}

func fail(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// change changes the state under the lock, and wakes waiting callers.
func (a *API) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// await waits until a condition holds under the lock.
func (a *API) await(done <-chan struct{}, holds func() bool) bool {
	for {
		a.mu.Lock()
		if holds() {
			a.mu.Unlock()
			return true
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

// longPoll is how long a poll without work is held open: longer than the real API holds it, so that tests need not wait
// for the pause between polls.
const longPoll = 20 * time.Second

func (a *API) poll(w http.ResponseWriter, r *http.Request) {
	var got *work
	late := make(chan struct{})
	timer := time.AfterFunc(longPoll, func() { close(late) })
	defer timer.Stop()
	go func() {
		<-r.Context().Done()
		if timer.Stop() {
			close(late)
		}
	}()
	a.await(late, func() bool {
		if r.Context().Err() != nil || a.down {
			return true
		}
		for _, item := range a.work {
			if item.state == "queued" {
				item.state, got = "starting", item
				return true
			}
		}
		return false
	})
	if got == nil {
		answer(w, nil)
		return
	}
	answer(w, a.workJSON(got))
}

func (a *API) workJSON(item *work) map[string]any {
	kind := "session"
	if item.session == "" {
		kind = "healthcheck"
	}
	return map[string]any{
		"id": item.id, "environment_id": a.Environment, "state": item.state, "type": "work", "created_at": stamp(0),
		"metadata": map[string]string{}, "data": map[string]string{"id": item.session, "type": kind},
	}
}

func stamp(n int) string { return time.Unix(1800000000+int64(n), 0).UTC().Format(time.RFC3339) }

// item finds the work of a request, or answers 404.
func (a *API) item(w http.ResponseWriter, r *http.Request) *work {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, item := range a.work {
		if item.id == r.PathValue("work") {
			return item
		}
	}
	fail(w, http.StatusNotFound, "not_found_error", "no such work")
	return nil
}

func (a *API) acknowledge(w http.ResponseWriter, r *http.Request) {
	if item := a.item(w, r); item != nil {
		a.change(func() { item.state = "active" })
		answer(w, a.workJSON(item))
	}
}

// beat extends a lease, if the worker's request names the last heartbeat.
func (a *API) beat(w http.ResponseWriter, r *http.Request) {
	item := a.item(w, r)
	if item == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last := "NO_HEARTBEAT"
	if item.heartbeat > 0 {
		last = stamp(item.heartbeat)
	}
	if item.stolen || r.URL.Query().Get("expected_last_heartbeat") != last {
		fail(w, http.StatusPreconditionFailed, "invalid_request_error", "another worker has the lease")
		return
	}
	item.heartbeat++
	answer(w, map[string]any{"type": "work_heartbeat", "last_heartbeat": stamp(item.heartbeat), "lease_extended": true, "state": "active", "ttl_seconds": a.TTL})
}

// stop ends an item. A session with open calls is queued again.
func (a *API) stop(w http.ResponseWriter, r *http.Request) {
	item := a.item(w, r)
	if item == nil {
		return
	}
	a.change(func() {
		if item.state == "stopped" || item.stolen {
			return
		}
		item.state = "stopped"
		if s := a.sessions[item.session]; s != nil && s.status != "terminated" && len(s.open()) > 0 {
			a.enqueueLocked(item.session)
		}
	})
	w.WriteHeader(http.StatusNoContent)
}

func (a *API) enqueueLocked(session string) {
	a.work = append(a.work, &work{id: fmt.Sprintf("work_%d", len(a.work)+1), session: session, state: "queued"})
}

// session finds the session of a request, or answers 404.
func (a *API) session(w http.ResponseWriter, r *http.Request) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[r.PathValue("session")]
	if s == nil {
		fail(w, http.StatusNotFound, "not_found_error", "no such session")
	}
	return s
}

func (a *API) getSession(w http.ResponseWriter, r *http.Request) {
	s := a.session(w, r)
	if s == nil {
		return
	}
	skills := []map[string]string{}
	a.mu.Lock()
	for name := range s.skills {
		skills = append(skills, map[string]string{"type": "custom", "skill_id": s.id + "." + name, "version": "1759178010641129"})
	}
	status, resources := s.status, []map[string]string{}
	if s.memory {
		resources = append(resources, map[string]string{"type": "memory_store", "memory_store_id": "memstore_1", "mount_path": "/mnt/memory/one"})
	}
	a.mu.Unlock()
	answer(w, map[string]any{"resources": resources, "id": s.id, "type": "session", "environment_id": a.Environment, "status": status, "agent": map[string]any{"skills": skills}})
}

func (a *API) listEvents(w http.ResponseWriter, r *http.Request) {
	if s := a.session(w, r); s != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		answer(w, map[string]any{"data": append([]map[string]any{}, s.events...), "has_more": false, "next_page": nil})
	}
}

// streamEvents sends new events as they happen.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request) {
	s := a.session(w, r)
	if s == nil {
		return
	}
	a.mu.Lock()
	next := len(s.events)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		var list []map[string]any
		cut := false
		if !a.await(r.Context().Done(), func() bool {
			list, cut = s.events[next:], a.down
			return len(list) > 0 || cut
		}) || cut {
			return
		}
		for _, e := range list {
			b, _ := json.Marshal(e)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
		}
		next += len(list)
		w.(http.Flusher).Flush()
	}
}

// postEvents receives results.
func (a *API) postEvents(w http.ResponseWriter, r *http.Request) {
	s := a.session(w, r)
	if s == nil {
		return
	}
	var body struct{ Events []map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	a.change(func() { s.events = append(s.events, body.Events...) })
	answer(w, map[string]string{"type": "send_session_events"})
}

func (a *API) getSkill(w http.ResponseWriter, r *http.Request) {
	_, name, _ := strings.Cut(r.PathValue("skill"), ".")
	answer(w, map[string]string{"id": "v", "type": "skill_version", "name": name, "directory": name, "skill_id": r.PathValue("skill"), "version": r.PathValue("version")})
}

func (a *API) downloadSkill(w http.ResponseWriter, r *http.Request) {
	id, name, _ := strings.Cut(r.PathValue("skill"), ".")
	a.mu.Lock()
	text := a.sessions[id].skills[name]
	a.mu.Unlock()
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	f, err := archive.Create(name + "/SKILL.md")
	if err == nil {
		_, err = f.Write([]byte(text))
	}
	if err != nil || archive.Close() != nil {
		fail(w, http.StatusInternalServerError, "api_error", "the archive could not be made")
		return
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Write(b.Bytes())
}

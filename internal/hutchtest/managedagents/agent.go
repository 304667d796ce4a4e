package managedagents

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// open returns the ids of calls without a result.
func (s *session) open() (ids []string) {
	for _, e := range s.events {
		switch e["type"] {
		case "agent.tool_use":
			ids = append(ids, e["id"].(string))
		case "user.interrupt":
			ids = nil
		case "user.tool_result":
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == e["tool_use_id"] })
		}
	}
	return ids
}

// Start makes a session and queues it. skills are the skills of its agent, as texts of SKILL.md by name.
func (a *API) Start(id string, skills map[string]string) {
	a.change(func() {
		a.sessions[id] = &session{id: id, status: "running", skills: skills}
		a.enqueueLocked(id)
	})
}

// Queue queues a session again, as a new message would.
func (a *API) Queue(id string) { a.change(func() { a.enqueueLocked(id) }) }

// Use makes the agent of a session call a tool, and returns the id of the call.
func (a *API) Use(id, tool string, input map[string]any) (call string) {
	a.change(func() {
		s := a.sessions[id]
		call = fmt.Sprintf("toolu_%s_%d", id, len(s.events))
		s.events = append(s.events, map[string]any{"type": "agent.tool_use", "id": call, "name": tool, "input": input, "processed_at": stamp(len(s.events))})
	})
	return call
}

// Patience is how long tests wait for an event that has to happen.
const Patience = time.Minute

// Result waits for the result of a call.
func (a *API) Result(t testing.TB, id, call string) (res Result) {
	t.Helper()
	if !a.await(after(Patience), func() bool {
		results := a.resultsLocked(id, call)
		if len(results) > 0 {
			res = results[0]
		}
		return len(results) > 0
	}) {
		t.Fatalf("there is no result of %s within %v", call, Patience)
	}
	return res
}

// Results returns all results of a call that have arrived so far.
func (a *API) Results(id, call string) []Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resultsLocked(id, call)
}

func (a *API) resultsLocked(id, call string) (list []Result) {
	for _, e := range a.sessions[id].events {
		if e["type"] != "user.tool_result" || e["tool_use_id"] != call {
			continue
		}
		res := Result{Error: e["is_error"] == true}
		blocks, _ := e["content"].([]any)
		for _, b := range blocks {
			block, _ := b.(map[string]any)
			text, _ := block["text"].(string)
			res.Text += text
		}
		list = append(list, res)
	}
	return list
}

// Do makes the agent call a tool, and waits for the result.
func (a *API) Do(t testing.TB, id, tool string, input map[string]any) Result {
	t.Helper()
	return a.Result(t, id, a.Use(id, tool, input))
}

// EndTurn sends the event that the agent of a session waits for its user.
func (a *API) EndTurn(id string) {
	a.event(id, "idle", map[string]any{"type": "session.status_idle", "stop_reason": map[string]any{"type": "end_turn"}})
}

// Interrupt sends the event of a user who stops the current work of a session's agent.
func (a *API) Interrupt(id string) {
	a.event(id, "running", map[string]any{"type": "user.interrupt"})
}

// AttachMemory attaches a memory store to a session.
func (a *API) AttachMemory(id string) { a.change(func() { a.sessions[id].memory = true }) }

// HealthCheck queues an item that is not a session.
func (a *API) HealthCheck() { a.change(func() { a.enqueueLocked("") }) }

// Terminate ends a session for good: it cannot be resumed.
func (a *API) Terminate(id string) {
	a.event(id, "terminated", map[string]any{"type": "session.status_terminated"})
}

func (a *API) event(id, status string, e map[string]any) {
	a.change(func() {
		s := a.sessions[id]
		s.status = status
		e["id"] = fmt.Sprintf("evt_%s_%d", id, len(s.events))
		e["processed_at"] = stamp(len(s.events))
		s.events = append(s.events, e)
	})
}

// Steal takes the lease of a session away from its worker, as if another worker had it.
func (a *API) Steal(id string) {
	a.change(func() {
		for _, item := range a.work {
			if item.session == id {
				item.stolen = true
			}
		}
	})
}

// Down(true) breaks all connections and every new request, until Down(false).
func (a *API) Down(down bool) {
	a.change(func() { a.down = down })
	if down {
		a.server.CloseClientConnections()
	}
}

// Refuse gives the environment another key, so that the old one is refused.
func (a *API) Refuse() { a.change(func() { a.Key = "another" }) }

// Await waits until an item of a session is in one of the states: queued, starting, active or stopped.
func (a *API) Await(t testing.TB, id string, states ...string) {
	t.Helper()
	if !a.await(after(Patience), func() bool {
		return slices.ContainsFunc(a.work, func(w *work) bool { return w.session == id && slices.Contains(states, w.state) })
	}) {
		t.Fatalf("the session %s is not %s within %v", id, strings.Join(states, " or "), Patience)
	}
}

// Requests returns all requests so far.
func (a *API) Requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

package mcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/mcp"
	"hutch/internal/room"
	"hutch/internal/scripted"
)

// A call's memory is that of its own request, not of the request that began the session: it is given back when the
// request and the call have ended.
func TestMemoryOfACall(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		all := room.New(100, 100)
		took := make(chan bool, 1)
		h := mcp.NewHandler(&scripted.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
			budget := caller.From(ctx).Budget
			took <- budget.Take(60) && !budget.Take(60)
			return hutch.ExecResult{}, nil
		}}, mcp.Options{})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tab, free := all.Open("ada")
			defer free()
			h.ServeHTTP(w, r.WithContext(caller.With(r.Context(), caller.Caller{Budget: tab})))
		}))
		ss := dial(t, srv.URL, era, nil)
		for range 3 {
			do(t, ss, "exec", map[string]any{"command": "true"})
			if !<-took {
				t.Error("a call has no bound, or the memory of one that has ended is still taken")
			}
		}
		ss.Close()
		h.Close(t.Context())
		srv.Close() // waits for every request
		if last, free := all.Open("ada"); !last.Take(100) {
			t.Error("all calls have ended, and memory is still taken")
		} else {
			free()
		}
	})
}

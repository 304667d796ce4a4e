package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
	"hutch/internal/membudget"
)

// A call is charged for the memory of its own request, not of the request that began the session. The memory is freed
// when the request and the call have ended.
func TestMemoryOfACall(t *testing.T) {
	inBothEras(t, func(t *testing.T, era string) {
		all := membudget.New(100_000, 100_000)
		took := make(chan bool, 1)
		h := mcp.NewHandler(&fakeservice.Service{OnExec: func(ctx context.Context, _ string, _ hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
			budget := caller.From(ctx).Budget
			took <- budget.Take(60_000) && !budget.Take(60_000)
			return hutch.ExecResult{}, nil
		}}, mcp.Options{})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			account, free := all.Open("ada")
			defer free()
			h.ServeHTTP(w, r.WithContext(caller.With(r.Context(), caller.Caller{Budget: account})))
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
		if last, free := all.Open("ada"); !last.Take(100_000) {
			t.Error("all calls have ended, and memory is still taken")
		} else {
			free()
		}
	})
}

// A list of short values needs many times the memory of its text, and that memory is charged before the list is
// decoded.
func TestMemoryOfLists(t *testing.T) {
	t.Parallel()
	h := mcp.NewHandler(&fakeservice.Service{}, mcp.Options{})
	all := membudget.New(8<<20, 8<<20)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, free := all.Open("ada")
		defer free()
		h.ServeHTTP(w, r.WithContext(caller.With(r.Context(), caller.Caller{Budget: account})))
	}))
	t.Cleanup(func() { srv.Close(); h.Close(context.Background()) })
	list := "[" + strings.Repeat("0,", 1_000_000) + "0]"
	for _, version := range eras {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"screen","arguments":{"sandboxId":"s","action":"zoom","region":` + list + `}}}`
		status, _, msg := post(t, srv.URL, body, "MCP-Protocol-Version", version)
		if text := fmt.Sprint(msg); !strings.Contains(text, "memory of requests") {
			t.Errorf("%s: %d %.300s", version, status, text)
		}
	}
}

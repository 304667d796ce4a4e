package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch/internal/fakeservice"
	"hutch/internal/mcp"
)

// FuzzMessage sends arbitrary messages in both eras: each answer is JSON-RPC, and none is an internal error.
func FuzzMessage(f *testing.F) {
	h := mcp.NewHandler(&fakeservice.Service{}, mcp.Options{Conversations: talks{}, SessionTimeout: time.Second})
	f.Cleanup(func() { h.Close(context.Background()) })
	for _, seed := range []string{
		initialize, modernCall("x"), `[]`, `[` + initialize + `]`, `{"jsonrpc":"2.0","id":1,"method":"tools/fly"}`, `{"jsonrpc":"2.0","method":"ping"}`,
		strings.Replace(modernCall("x"), `"command"`, `"command":7,"env":{"a":[]},"x"`, 1), `{"jsonrpc":"2.0","id":1.5,"method":null}`, "\xff", `1 2`,
	} {
		for _, era := range eras {
			f.Add(era, seed)
		}
	}
	f.Fuzz(func(t *testing.T, era, body string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header["Mcp-Protocol-Version"] = []string{era}
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "exec")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if ctx.Err() != nil {
			t.Fatalf("no answer to %q", body)
		}
		if w.Code >= 500 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(bytes.TrimSpace(w.Body.Bytes())) {
			t.Errorf("%q: %d, which is no JSON: %s", body, w.Code, w.Body)
		}
	})
}

// Package compattest serves APIs of other products, which are translated to Hutch's, for their tests.
package compattest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// Handler is a handler that translates another product's API.
type Handler interface {
	http.Handler
	Close()
}

// Server serves a Handler. There is no guard: the header Owner names the caller. Paths in requests are relative to a
// prefix.
type Server struct {
	*httptest.Server
	t      *testing.T
	prefix string
}

// Serve serves h until the test ends.
func Serve(t *testing.T, h Handler, prefix string) Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(caller.WithOwner(r.Context(), caller.Owner{ID: r.Header.Get("Owner")})))
	}))
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return Server{srv, t, prefix}
}

// Answer is the answer to a request.
type Answer struct {
	http.Header
	Status int
	Body   string
}

// Ask sends a request; header has names and values in turn.
func (s Server) Ask(method, path, body string, header ...string) Answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+s.prefix+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return Answer{resp.Header, resp.StatusCode, string(got)}
}

// NoneLeft fails the test if sandboxes are left after a while.
func NoneLeft(t *testing.T, svc hutch.Service) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, err := svc.Sandboxes(context.Background(), hutch.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sandboxes are left", len(list))
		}
	}
}

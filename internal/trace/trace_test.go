package trace_test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/trace"
)

// receiver is an OTLP receiver over HTTP.
func receiver(t *testing.T) (url string, got <-chan *spans.Span) {
	t.Helper()
	out := make(chan *spans.Span, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &req) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "k" {
			t.Errorf("%s %v %v", r.URL, r.Header, err)
		}
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					out <- s
				}
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, out
}

func TestSpans(t *testing.T) {
	t.Parallel()
	url, got := receiver(t)
	tr, err := trace.New(t.Context(), trace.Options{Endpoint: url, Headers: map[string]string{"X-Key": "k"}})
	if err != nil {
		t.Fatal(err)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx, end, err := tr.Begin(caller.WithTrace(t.Context(), parent), audit.Operation{Verb: "Exec", Sandbox: "demo", Surface: "mcp"})
	if err != nil {
		t.Fatal(err)
	}
	inner := caller.From(ctx).Trace
	end(audit.Outcome{Err: hutch.Errorf(hutch.Timeout, "too long")})
	root, end, _ := tr.Begin(t.Context(), audit.Operation{Verb: "Create"})
	end(audit.Outcome{Sandbox: "sb-1"})
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := <-got
	if hex.EncodeToString(s.TraceId) != parent[3:35] || hex.EncodeToString(s.ParentSpanId) != parent[36:52] || s.Name != "Exec" || s.Status.Message != "too long" {
		t.Errorf("%v", s)
	}
	if want := "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"; inner != want {
		t.Errorf("the command is told %s, not %s", inner, want)
	}
	text := s.String()
	for _, want := range []string{"hutch.sandbox", "demo", "hutch.surface", "hutch.result", "timeout"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if s := <-got; hex.EncodeToString(s.TraceId) != caller.From(root).TraceID() || len(s.ParentSpanId) != 0 {
		t.Errorf("%v", s)
	}
}

// TestNobodyReceives: calls continue without a receiver.
func TestNobodyReceives(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close() // so that no server is there
	tr, err := trace.New(t.Context(), trace.Options{Endpoint: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		_, end, _ := tr.Begin(t.Context(), audit.Operation{Verb: "Exec"})
		end(audit.Outcome{})
	}
	tr.Close(t.Context())
}

func BenchmarkObserver(b *testing.B) {
	tr, err := trace.New(b.Context(), trace.Options{Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, end, _ := tr.Begin(b.Context(), audit.Operation{Verb: "Exec"})
		end(audit.Outcome{})
	}
}

package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/fakeservice"
)

// The benchmarks compare both forms of Exec of a command that costs nothing with a plain HTTP call by the same kind of
// client to the same server.

func BenchmarkBareHTTP(b *testing.B) {
	srv := serveScript(b)
	for b.Loop() {
		resp, err := srv.c.HTTP.Post(srv.url+"/nothing", "application/json", strings.NewReader(`{"command":"true"}`))
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			b.Fatal(resp.Status)
		}
	}
}

func BenchmarkExec(b *testing.B) { benchmarkExec(b, nil) }

func BenchmarkExecStreamed(b *testing.B) { benchmarkExec(b, client.To(io.Discard, io.Discard)) }

func benchmarkExec(b *testing.B, out func(hutch.Output) error) {
	srv := serveScript(b)
	for b.Loop() {
		if _, err := srv.c.Exec(b.Context(), "s", hutch.ExecRequest{Command: "true"}, out); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExecOutput is the throughput of streamed output.
func BenchmarkExecOutput(b *testing.B) {
	const piece, pieces = 64 << 10, 256
	sb := open(b, printer(piece, pieces))
	b.SetBytes(piece * pieces)
	for b.Loop() {
		if _, err := sb.Exec(b.Context(), hutch.ExecRequest{Command: "yes"}, client.To(io.Discard, nil)); err != nil {
			b.Fatal(err)
		}
	}
}

type scriptServer struct {
	c   *client.Client
	url string
}

func serveScript(b *testing.B) scriptServer {
	b.Helper()
	svc := &fakeservice.Service{}
	if _, err := svc.Create(b.Context(), hutch.CreateRequest{ID: "s"}); err != nil {
		b.Fatal(err)
	}
	c, url := serveAt(b, svc)
	return scriptServer{c, url}
}

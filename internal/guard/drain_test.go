package guard_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"hutch"
	"hutch/internal/guard"
	"hutch/internal/httpio"
	"hutch/internal/listen"
	"hutch/internal/problem"
)

// TestRefusedUploadIsAnswered: a client that writes its whole file before it reads still sees why the file was
// refused.
func TestRefusedUploadIsAnswered(t *testing.T) {
	t.Parallel()
	refuse := func(w http.ResponseWriter, r *http.Request) {
		r.Body.Read(make([]byte, 10))
		problem.Write(w, hutch.Errorf(hutch.Exhausted, "the disk is full").With("limit", "disk"))
	}
	for name, handle := range map[string]http.HandlerFunc{
		"an upload": refuse,
		"an upload with progress": func(w http.ResponseWriter, r *http.Request) {
			defer httpio.Duplex(w, r)()
			refuse(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upload(t, handle)
		})
	}
}

// upload sends a large file to a handler that refuses it, and checks the answer.
func upload(t *testing.T, handle http.Handler) {
	anyone := func(*http.Request) bool { return true }
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := listen.NewGate(inner, listen.GateOptions{Most: 100})
	srv := httptest.NewUnstartedServer(gate.Handler(guard.New(handle, guard.Options{Open: anyone, Unbounded: anyone})))
	srv.Listener.Close()
	srv.Listener, srv.Config.ConnContext = gate, gate.Context
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	const size = 100 << 20
	fmt.Fprintf(conn, "PUT /file HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size)
	for piece, sent := make([]byte, 1<<20), 0; sent < size; sent += len(piece) {
		if sent == size/2 {
			time.Sleep(time.Second) // longer than net/http itself waits for the rest of a body
		}
		if _, err := conn.Write(piece); err != nil {
			t.Fatalf("after %d MiB: %v", sent>>20, err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%v, %v", resp, err)
	}
}

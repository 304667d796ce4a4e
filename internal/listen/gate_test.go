package listen_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch/internal/listen"
)

// gatedServer is a server behind a gate: /CLASS claims its connection for a class and, with ?wait, answers when the test
// says so.
type gatedServer struct {
	addr string
	gate *listen.Gate
	let  chan struct{}
}

func newGatedServer(t *testing.T, opt listen.GateOptions, tune func(*httptest.Server)) *gatedServer {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	h := &gatedServer{addr: inner.Addr().String(), gate: listen.NewGate(inner, opt), let: make(chan struct{})}
	srv := httptest.NewUnstartedServer(h.gate.Handler(http.HandlerFunc(h.serve)))
	srv.Listener.Close()
	srv.Listener, srv.Config.ConnContext, srv.Config.Protocols = h.gate, h.gate.Context, listen.Protocols()
	if tune == nil {
		srv.Start()
	} else {
		tune(srv)
	}
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(h.let) })
	return h
}

func (h *gatedServer) serve(w http.ResponseWriter, r *http.Request) {
	if class := r.URL.Path[1:]; class != "" && !listen.Claim(r.Context(), class) {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	if r.URL.Query().Has("wait") {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		<-h.let
	}
}

// visit opens a connection and, if there is a path, makes a request on it.
func (h *gatedServer) visit(t *testing.T, path string) (net.Conn, int) {
	t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	if path == "" {
		return conn, 0
	}
	return conn, ask(conn, path)
}

// ask returns the status of an answer, 0 without an answer.
func ask(conn net.Conn, path string) int {
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	return resp.StatusCode
}

// ended reports whether the server closes a connection.
func ended(conn net.Conn, within time.Duration) bool {
	conn.SetReadDeadline(time.Now().Add(within))
	_, err := conn.Read(make([]byte, 1))
	timeout, ok := err.(net.Error)
	return err != nil && !(ok && timeout.Timeout())
}

func TestStrangersLockNobodyOut(t *testing.T) {
	t.Parallel()
	h := newGatedServer(t, listen.GateOptions{Most: 20, StrangerIdle: time.Hour}, nil)
	kept, status := h.visit(t, "/ada")
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	var idle []net.Conn
	for i := range 200 {
		path := "" // says nothing, ever
		if i%4 == 0 {
			path = "/" // asked for a page, and stays
		}
		conn, _ := h.visit(t, path)
		idle = append(idle, conn)
	}
	if _, status := h.visit(t, "/bob"); status != 200 {
		t.Errorf("while a stranger holds all it can: %d", status)
	}
	if status := ask(kept, "/ada"); status != 200 {
		t.Errorf("a connection that has shown a token was closed for a stranger's: %d", status)
	}
	if !ended(idle[0], 10*time.Second) {
		t.Error("the oldest connection of the stranger is still open")
	}
}

func TestStrangersMayNotStay(t *testing.T) {
	t.Parallel()
	h := newGatedServer(t, listen.GateOptions{Most: 20, StrangerIdle: 50 * time.Millisecond}, nil)
	silent, _ := h.visit(t, "")
	visitor, _ := h.visit(t, "/")
	known, _ := h.visit(t, "/ada")
	if !ended(silent, 10*time.Second) || !ended(visitor, 10*time.Second) {
		t.Error("an idle connection of a stranger stays open")
	}
	if ended(known, 100*time.Millisecond) {
		t.Error("an idle connection of an owner was closed")
	}
}

func TestShareOfAnOwner(t *testing.T) {
	t.Parallel()
	h := newGatedServer(t, listen.GateOptions{Most: 100, Share: 4}, nil)
	idle, _ := h.visit(t, "/ada")
	for range 4 {
		if _, status := h.visit(t, "/ada?wait"); status != 200 {
			t.Fatalf("within the share: %d", status)
		}
	}
	if !ended(idle, 10*time.Second) {
		t.Error("an idle connection was not closed for a connection in use")
	}
	if _, status := h.visit(t, "/ada?wait"); status != 429 {
		t.Errorf("over the share: %d", status)
	}
	if _, status := h.visit(t, "/bob?wait"); status != 200 {
		t.Errorf("another owner: %d", status)
	}
}

func TestShareOfAnAddress(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		h := newGatedServer(t, listen.GateOptions{Most: 100, Share: 4, Shared: func(netip.Addr) bool { return shared }}, nil)
		var conns []net.Conn
		for range 6 {
			conn, _ := h.visit(t, "/")
			conns = append(conns, conn)
		}
		if got := ended(conns[0], time.Second); got == shared {
			t.Errorf("the oldest of 6 connections of an address, shared %v, was closed: %v", shared, got)
		}
	}
}

// TestClaimsOverTLS: a connection is found by its requests, over any protocol.
func TestClaimsOverTLS(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2} {
		var client *http.Client
		h := newGatedServer(t, listen.GateOptions{Most: 40, Share: 1, StrangerIdle: time.Hour}, func(srv *httptest.Server) {
			srv.EnableHTTP2 = version == 2
			srv.StartTLS()
			client = srv.Client()
		})
		again := &http.Client{Transport: client.Transport.(*http.Transport).Clone()}
		get := func(c *http.Client, path string) int {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, "GET", "https://"+h.addr+path, nil)
			must(t, err)
			resp, err := c.Do(r)
			must(t, err)
			if !strings.Contains(path, "wait") {
				io.Copy(io.Discard, resp.Body)
			}
			t.Cleanup(func() { resp.Body.Close() })
			return resp.StatusCode
		}
		if one, two := get(client, "/ada?wait"), get(again, "/ada"); one != 200 || two != 429 {
			t.Errorf("HTTP/%d: %d, and over the share %d", version, one, two)
		}
	}
}

func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	p, err := listen.ParseProxies([]string{"127.0.0.1", "10.0.0.0/8", "::1"})
	must(t, err)
	for _, c := range []struct {
		remote string
		said   []string
		want   string
	}{
		{"127.0.0.1:9", nil, "127.0.0.1"},
		{"127.0.0.1:9", []string{"192.0.2.7"}, "192.0.2.7"},
		{"[::ffff:127.0.0.1]:9", []string{"192.0.2.7"}, "192.0.2.7"},
		{"127.0.0.1:9", []string{"198.51.100.9, 192.0.2.7"}, "192.0.2.7"}, // the client itself wrote the first one
		{"127.0.0.1:9", []string{"198.51.100.9", "192.0.2.7, 10.1.2.3"}, "192.0.2.7"},
		{"127.0.0.1:9", []string{"192.0.2.7, nonsense"}, "127.0.0.1"},
		{"192.0.2.1:9", []string{"198.51.100.9"}, "192.0.2.1"}, // no proxy
		{"127.0.0.2:9", []string{"198.51.100.9"}, "127.0.0.2"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": slices.Clone(c.said)}}
		if got := p.Client(r).String(); got != c.want {
			t.Errorf("%s said %q: %s, not %s", c.remote, c.said, got, c.want)
		}
	}
	if _, err := listen.ParseProxies([]string{"nginx"}); err == nil {
		t.Error("a name is taken for a proxy")
	}
}

// TestStrangersWhoSendSlowly: strangers who send bodies without end do not keep other clients out. A known caller stays
// connected.
func TestStrangersWhoSendSlowly(t *testing.T) {
	t.Parallel()
	h := newGatedServer(t, listen.GateOptions{Most: 20, Shared: func(netip.Addr) bool { return true }}, nil)
	known, _ := h.visit(t, "/ada")
	working, _ := h.visit(t, "/ada?wait")
	for range 50 {
		if _, status := h.visit(t, "/?wait"); status != http.StatusOK {
			t.Fatalf("a stranger is refused: %d", status)
		}
	}
	time.Sleep(time.Second) // after which they are slow
	for range 5 {
		if _, status := h.visit(t, "/eve"); status != http.StatusOK {
			t.Errorf("another caller: %d", status)
		}
	}
	if status := ask(known, "/ada"); status != http.StatusOK {
		t.Errorf("a caller who was connected: %d", status)
	}
	working.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := working.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the request of a caller was cut: %v", err)
	}
}

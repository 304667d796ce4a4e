package agent_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// line is a connection to an agent, frame by frame.
type line struct {
	net.Conn
	t testing.TB
	r *wire.Reader
	w *wire.Writer
}

func newLine(t testing.TB, dial func(context.Context) (net.Conn, error)) *line {
	t.Helper()
	nc, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &line{nc, t, wire.NewReader(nc, wire.MaxReply), wire.NewWriter(nc)}
}

func (l *line) send(kind wire.Type, v any) {
	l.t.Helper()
	if err := l.w.WriteJSON(kind, v); err != nil {
		l.t.Fatal(err)
	}
}

func (l *line) request(r wire.Request) { l.t.Helper(); l.send(wire.TypeRequest, r) }

// next reads a frame and decodes it into v.
func (l *line) next(want wire.Type, v any) {
	l.t.Helper()
	kind, payload, err := l.r.Next()
	if err != nil || kind != want {
		l.t.Fatalf("frame %q %.200q, %v, want %q", kind, payload, err, want)
	}
	if err := json.Unmarshal(payload, v); err != nil {
		l.t.Fatal(err)
	}
}

func (l *line) hello(token string) {
	l.t.Helper()
	n := wire.Nonces{Daemon: wire.NewNonce()}
	l.send(wire.TypeHello, wire.Hello{Version: wire.Version, Nonce: n.Daemon})
	var w wire.Welcome
	l.next(wire.TypeWelcome, &w)
	n.Agent = w.Nonce
	if err := l.w.Write(wire.TypeProof, n.Proof(token, wire.DaemonSide)); err != nil {
		l.t.Fatal(err)
	}
}

// exit skips frames up to the exit.
func (l *line) exit() (x wire.Exit) {
	l.t.Helper()
	for {
		kind, payload, err := l.r.Next()
		if err != nil {
			l.t.Fatal(err)
		}
		if kind == wire.TypeExit {
			if err := json.Unmarshal(payload, &x); err != nil {
				l.t.Fatal(err)
			}
			return x
		}
	}
}

// closed waits for the agent to close the connection.
func (l *line) closed() {
	l.t.Helper()
	if _, err := io.Copy(io.Discard, l.Conn); errors.Is(err, context.DeadlineExceeded) {
		l.t.Error("the connection stays open")
	}
}

func TestHello(t *testing.T) {
	t.Parallel()
	_, dial := serve(t, wire.Boot{})
	proof := func(token string, by wire.Side) func(wire.Nonces) []byte {
		return func(n wire.Nonces) []byte { return n.Proof(token, by) }
	}
	for name, tt := range map[string]struct {
		nonce []byte
		proof func(wire.Nonces) []byte
	}{
		"wrong token":       {wire.NewNonce(), proof("other", wire.DaemonSide)},
		"the agent's words": {wire.NewNonce(), proof(token, wire.AgentSide)},
		"no proof":          {wire.NewNonce(), func(wire.Nonces) []byte { return nil }},
		"no nonce":          {nil, proof(token, wire.DaemonSide)},
		"another nonce":     {wire.NewNonce(), func(n wire.Nonces) []byte { n.Agent = wire.NewNonce(); return n.Proof(token, wire.DaemonSide) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, dial)
			l.send(wire.TypeHello, wire.Hello{Version: wire.Version, Nonce: tt.nonce})
			var w wire.Welcome
			l.next(wire.TypeWelcome, &w)
			l.w.Write(wire.TypeProof, tt.proof(wire.Nonces{Daemon: tt.nonce, Agent: w.Nonce}))
			l.w.WriteJSON(wire.TypeRequest, wire.Request{Op: "ping"}) // the agent can have closed the connection by now
			var f wire.Failure
			l.next(wire.TypeError, &f)
			if f.Kind != hutch.Denied {
				t.Errorf("%+v", f)
			}
			l.closed()
		})
	}
	t.Run("wrong version", func(t *testing.T) {
		l := newLine(t, dial)
		l.send(wire.TypeHello, wire.Hello{Version: wire.Version + 1})
		var f wire.Failure
		l.next(wire.TypeError, &f)
		if f.Kind != hutch.Unsupported {
			t.Errorf("%+v", f)
		}
		l.closed()
	})
}

func TestGarbage(t *testing.T) {
	t.Parallel()
	c, dial := serve(t, wire.Boot{})
	frame := func(kind byte, claimed int, payload string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(claimed)), payload...)
	}
	for name, tt := range map[string]struct {
		welcome bool
		bytes   []byte
	}{
		"noise":                {false, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
		"a huge hello":         {false, frame('H', 1<<20, "{")},
		"a request before":     {false, frame('R', 2, "{}")},
		"hello is no JSON":     {false, frame('H', 3, "abc")},
		"a huge request":       {true, frame('R', 1<<31, "{")},
		"request is no JSON":   {true, frame('R', 3, "abc")},
		"request is nothing":   {true, frame('R', 0, "")},
		"an unknown frame":     {true, frame('?', 0, "")},
		"a frame of the agent": {true, frame('x', 2, "{}")},
		"a second hello":       {true, frame('H', 2, "{}")},
		"signal is no JSON":    {true, frame('S', 1, "x")},
		"signal 65":            {true, frame('S', 13, `{"signal":65}`)},
		"two requests":         {true, append(frame('R', 47, `{"op":"start","start":{"id":"x","argv":["cat"]}}`)[:0], "R\x00\x00\x00\x01{"...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, dial)
			if tt.welcome {
				l.hello(token)
			}
			if _, err := l.Write(tt.bytes); err != nil {
				t.Fatal(err)
			}
			l.closed()
		})
	}
	t.Run("half a frame", func(t *testing.T) {
		l := newLine(t, dial)
		l.hello(token)
		l.Write(frame('R', 100, `{"op":`))
		l.Close()
	})
	t.Run("unknown request", func(t *testing.T) {
		l := newLine(t, dial)
		l.hello(token)
		for range 3 {
			l.request(wire.Request{Op: "fly"})
			var f wire.Failure
			if l.next(wire.TypeError, &f); f.Kind != hutch.Unsupported {
				t.Errorf("%+v", f)
			}
		}
	})
	if r := run(t, c, wire.Start{Command: "echo fine"}); r.stdout != "fine\n" {
		t.Errorf("%+v", r)
	}
}

// A second request during the first ends the connection and the first one's process.
func TestRequestDuringRequest(t *testing.T) {
	t.Parallel()
	_, dial := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	l := newLine(t, dial)
	l.hello(token)
	l.request(wire.Request{Op: "start", Start: &wire.Start{ID: hutch.NewID("x"), Command: "sleep 1000", Env: []string{mark}}})
	l.next(wire.TypeStarted, &wire.Process{})
	l.request(wire.Request{Op: "ping"})
	l.closed()
	eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
}

func TestStdinBeyondWindow(t *testing.T) {
	t.Parallel()
	_, dial := serve(t, wire.Boot{})
	l := newLine(t, dial)
	l.hello(token)
	l.request(wire.Request{Op: "start", Start: &wire.Start{ID: hutch.NewID("x"), Command: "sleep 1000", Stdin: true}})
	l.next(wire.TypeStarted, &wire.Process{})
	chunk := make([]byte, 64<<10)
	for range 16 {
		if l.w.Write(wire.TypeStdin, chunk) != nil {
			break
		}
	}
	l.closed()
}

// Frames that arrive after the end of their process are ignored.
func TestLateFrames(t *testing.T) {
	t.Parallel()
	_, dial := serve(t, wire.Boot{})
	l := newLine(t, dial)
	l.hello(token)
	for range 3 {
		l.request(wire.Request{Op: "start", Start: &wire.Start{ID: hutch.NewID("x"), Command: "true", Stdin: true}})
		l.exit()
		l.w.Write(wire.TypeStdin, []byte("late"))
		l.w.Write(wire.TypeStdinEnd, nil)
		l.send(wire.TypeSignal, wire.Signal{Signal: 9})
	}
}

// Clients without the token cannot keep out the daemon.
func TestStrangersDoNotCrowdOut(t *testing.T) {
	t.Parallel()
	c, dial := serve(t, wire.Boot{})
	good := newLine(t, dial)
	good.hello(token)
	for range 400 {
		newLine(t, dial)
	}
	began := time.Now()
	for i := range 20 {
		if r := run(t, c, wire.Start{Command: fmt.Sprint("echo ", i)}); strings.TrimSpace(r.stdout) != fmt.Sprint(i) {
			t.Errorf("%+v", r)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	good.request(wire.Request{Op: "ping"})
	good.next(wire.TypeReply, &wire.Stats{})
}

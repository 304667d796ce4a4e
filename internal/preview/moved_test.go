package preview

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"hutch"
)

// moves is a Sandboxes with one sandbox that moves to another machine, or changes, while a visitor connects to it.
type moves struct {
	Sandboxes
	mu     sync.Mutex
	here   hutch.Preview
	end    context.CancelFunc // ends the port on the first machine
	next   *hutch.Preview     // the port after the move; nil for none
	always bool               // the sandbox moves again at each connection
	lost   error              // why the port cannot be found after that
}

func (m *moves) Preview(label string) (hutch.Preview, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.end == nil && m.lost != nil:
		return hutch.Preview{}, m.lost
	case m.here.Life == nil || m.here.Label() != label:
		return hutch.Preview{}, hutch.ErrNoPreview
	}
	return m.here, nil
}

func (m *moves) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	if !m.move() {
		return m.Sandboxes.DialPort(ctx, sandbox, port)
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// move moves the sandbox, unless it has moved already.
func (m *moves) move() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end == nil {
		return false
	}
	m.end()
	m.here, m.end = hutch.Preview{}, nil
	if m.next != nil {
		m.here = *m.next
		m.here.Life = context.Background()
	}
	if m.always {
		m.here.Life, m.end = context.WithCancel(context.Background())
	}
	return true
}

// If a sandbox moves while it wakes for a visitor, the visitor gets the page from its new machine.
func TestSandboxThatMoves(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		method, body string
		change       func(*moves)
		status       int
		says         string
	}{
		"a page":               {method: "GET", status: 200, says: "here"},
		"its head":             {method: "HEAD", status: 200},
		"a form":               {method: "POST", body: "sent", status: 503, says: "moving to another machine"},
		"moves without end":    {method: "GET", change: func(m *moves) { m.always = true }, status: 503, says: "moving to another machine"},
		"is not found in time": {method: "GET", change: func(m *moves) { m.lost = hutch.Errorf(hutch.Unavailable, "a machine is slow") }, status: 503, says: "a machine is slow"},
		"is no longer exposed": {method: "GET", change: func(m *moves) { m.next = nil }, status: 404, says: "no such preview"},
		"is private now":       {method: "GET", change: func(m *moves) { m.next.Access = hutch.PrivatePort }, status: 404, says: "no such preview"},
		"is of another owner":  {method: "GET", change: func(m *moves) { m.next.Owner = "mallory" }, status: 404, says: "no such preview"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var m moves
			b := open(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("here")) }, func(o *Options) {
				m.Sandboxes = o.Sandboxes
				o.Sandboxes = &m
			})
			m.here = b.previews[public]
			next := m.here
			m.next = &next
			m.here.Life, m.end = context.WithCancel(t.Context())
			if c.change != nil {
				c.change(&m)
			}
			resp, body := b.ask(t, c.method, public, "/", strings.NewReader(c.body))
			if resp.StatusCode != c.status || !strings.Contains(body, c.says) {
				t.Errorf("%s %s", resp.Status, body)
			}
			if c.status == 503 && resp.Header.Get("Retry-After") == "" {
				t.Error("it does not say when to try again")
			}
		})
	}
}

package servicetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
)

// listener is a server that sends a greeting, and sends its input back when it has received all of it. It prints its
// port.
const listener = `
import socket, sys, threading
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(family)
s.bind((sys.argv[1], 0))
s.listen(64)
print('port', s.getsockname()[1], flush=True)
def serve(c):
    c.sendall(b'hello\n')
    all = b''
    while True:
        b = c.recv(1 << 16)
        if not b:
            break
        all += b
    c.sendall(all)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// listen starts listener on an address and returns its port.
func (s portTests) listen(t *testing.T, id, address string) (port int, p hutch.Process) {
	t.Helper()
	s.writeText(t, id, "listener.py", listener)
	p = s.start(t, id, hutch.ProcessRequest{Command: "exec python3 listener.py " + address, Name: "listener"})
	res, err := s.svc.Wait(bounded(t), id, p.ID, hutch.WaitRequest{Pattern: `port \d+$`, Timeout: 30})
	if err != nil || !res.Met {
		t.Fatalf("the listener: %+v, %v", res, err)
	}
	if _, err := fmt.Sscanf(res.Match, "port %d", &port); err != nil {
		t.Fatalf("the listener printed %q", res.Match)
	}
	return port, p
}

func (s *suite) writeText(t *testing.T, id, path, text string) {
	t.Helper()
	if _, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// portTests are tests of connections to ports of a sandbox, and exposed ports.
type portTests struct{ *suite }

func (s portTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"Dial":       s.dialPort,
		"DialClosed": s.dialClosed,
		"DialEnds":   s.dialEnds,
		"Expose":     s.testExpose,
		"Unexpose":   s.testUnexpose,
		"ExposeBad":  s.exposeRefused,
		"Watch":      s.watch,
	}
}

func (s portTests) dialPort(t *testing.T) {
	id := s.open(t)
	for _, address := range []string{"127.0.0.1", "0.0.0.0", "::1"} {
		port, _ := s.listen(t, id, address)
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() { s.converse(t, id, port) })
		}
		calls.Wait()
	}
}

func (s portTests) dialClosed(t *testing.T) {
	id := s.open(t)
	_, err := s.svc.DialPort(bounded(t), id, 1)
	wantKind(t, hutch.Unavailable, err, "a port without a server")
	if e := hutch.AsError(err); fmt.Sprint(e.Data["port"]) != "1" {
		t.Errorf("its data: %v", e.Data)
	}
	for _, port := range []int{-1, 0, 65536} {
		_, err := s.svc.DialPort(bounded(t), id, port)
		wantKind(t, hutch.Invalid, err, "port %d", port)
	}
	_, err = s.svc.DialPort(bounded(t), "nobody", 80)
	wantKind(t, hutch.NotFound, err, "no sandbox")
}

func (s portTests) dialEnds(t *testing.T) {
	id := s.open(t)
	port, p := s.listen(t, id, "127.0.0.1")
	c := s.dial(t, id, port)
	defer c.Close()
	if err := s.svc.Signal(bounded(t), id, p.ID, 9); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) {
		t.Error("the connection outlives the server")
	}
}

func (s portTests) exposeRefused(t *testing.T) {
	id := s.open(t)
	for _, req := range []hutch.ExposeRequest{
		{Port: 80, Protocol: "ftp"},
		{}, {Port: -1}, {Port: 65536}, {Port: 80, Token: "Upper"}, {Port: 80, Token: "a.b"}, {Port: 80, Token: strings.Repeat("a", 17)},
		{Port: 80, Access: "secret"}, {Port: 80, Name: strings.Repeat("n", 200)}, {Port: 80, Name: "a\nb"},
	} {
		_, err := s.svc.Expose(bounded(t), id, req)
		wantKind(t, hutch.Invalid, err, "%+v", req)
	}
	_, err := s.svc.Expose(bounded(t), "nobody", hutch.ExposeRequest{Port: 80})
	wantKind(t, hutch.NotFound, err, "no sandbox")
}

func (s portTests) watch(t *testing.T) {
	id := s.open(t)
	events := make(chan hutch.PortEvent, 100)
	ctx, stop := context.WithCancel(bounded(t))
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := s.svc.WatchPorts(ctx, id, func(e hutch.PortEvent) error { events <- e; return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	defer watch.Wait()
	defer stop()
	port, p := s.listen(t, id, "127.0.0.1")
	await(t, events, hutch.PortEvent{Type: hutch.PortOpened, Port: port})
	if err := s.svc.Signal(bounded(t), id, p.ID, 9); err != nil {
		t.Fatal(err)
	}
	await(t, events, hutch.PortEvent{Type: hutch.PortClosed, Port: port})
}

// await waits for an event and ignores others, because sandboxes may share a machine.
func await(t *testing.T, events <-chan hutch.PortEvent, want hutch.PortEvent) {
	t.Helper()
	for limit := time.After(patience); ; {
		select {
		case e := <-events:
			if e == want {
				return
			}
		case <-limit:
			t.Fatalf("waited without success for %+v", want)
		}
	}
}

func (s portTests) dial(t *testing.T, id string, port int) net.Conn {
	t.Helper()
	c, err := s.svc.DialPort(bounded(t), id, port)
	if err != nil {
		t.Fatalf("dial port %d: %v", port, err)
	}
	return c
}

// converse sends much data to a listener, and reads only after all is sent.
func (s portTests) converse(t *testing.T, id string, port int) {
	c, err := s.svc.DialPort(bounded(t), id, port)
	if err != nil {
		t.Errorf("dial port %d: %v", port, err)
		return
	}
	defer c.Close()
	text := make([]byte, 300_000)
	rand.Read(text)
	if _, err := c.Write(text); err != nil {
		t.Errorf("write: %v", err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Errorf("close one way: %v", err)
	}
	got, err := io.ReadAll(c)
	if want := append([]byte("hello\n"), text...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, want %d: %v", len(got), len(want), err)
	}
}

func (s portTests) expose(t *testing.T, id string, req hutch.ExposeRequest) hutch.Port {
	t.Helper()
	p, err := s.svc.Expose(bounded(t), id, req)
	if err != nil {
		t.Fatalf("expose %+v: %v", req, err)
	}
	return p
}

func (s portTests) testExpose(t *testing.T) {
	id := s.open(t)
	first := s.expose(t, id, hutch.ExposeRequest{Port: 8080, Name: "web"})
	if first.SandboxID != id || first.Port != 8080 || first.Name != "web" || len(first.Token) != hutch.MaxPortToken || first.Access != hutch.PublicPort {
		t.Errorf("exposed %+v", first)
	}
	if !strings.Contains(first.URL, fmt.Sprintf("://8080-%s-%s.", id, first.Token)) {
		t.Errorf("its URL is %s", first.URL)
	}
	if again := s.expose(t, id, hutch.ExposeRequest{Port: 8080}); again != first {
		t.Errorf("exposed again: %+v, was %+v", again, first)
	}
	if again := s.expose(t, id, hutch.ExposeRequest{Port: 8080, Token: first.Token}); again != first {
		t.Errorf("exposed again with its token: %+v, was %+v", again, first)
	}
	second := s.expose(t, id, hutch.ExposeRequest{Port: 8080, Token: "a_b-c", Access: hutch.PrivatePort})
	if second.Token != "a_b-c" || second.Name != "web" || second.Access != hutch.PrivatePort || second.URL == first.URL {
		t.Errorf("exposed with another token: %+v", second)
	}
	if again := s.expose(t, id, hutch.ExposeRequest{Port: 8080}); again.Access != hutch.PrivatePort {
		t.Errorf("a private port became %s unasked", again.Access)
	}
	low := s.expose(t, id, hutch.ExposeRequest{Port: 1, Token: "x"})
	if low = s.expose(t, id, hutch.ExposeRequest{Port: 1, Protocol: hutch.HTTPSPort}); low.Protocol != hutch.HTTPSPort || low.Token != "x" {
		t.Errorf("a port of HTTPS: %+v", low)
	}
	if again := s.expose(t, id, hutch.ExposeRequest{Port: 1}); again != low {
		t.Errorf("exposed again, it is %+v", again)
	}
	list, err := s.svc.Ports(bounded(t), id)
	if err != nil || len(list) != 2 || list[0] != low || list[1] != second {
		t.Errorf("the list is %+v, %v", list, err)
	}
	s.testTokens(t, id, first.Token)
}

// testTokens checks that port 8080 accepts only the token a_b-c.
func (s portTests) testTokens(t *testing.T, id, old string) {
	t.Helper()
	for token, want := range map[string]bool{"a_b-c": true, old: false, "": false, "x": false} {
		if got, err := s.svc.ValidatePortToken(bounded(t), id, 8080, token); err != nil || got != want {
			t.Errorf("the token %q is valid: %v, %v", token, got, err)
		}
	}
}

func (s portTests) testUnexpose(t *testing.T) {
	id := s.open(t)
	s.expose(t, id, hutch.ExposeRequest{Port: 3000, Access: hutch.PrivatePort})
	link, err := s.svc.LinkPort(bounded(t), id, 3000, 60)
	if left := time.Until(link.ExpiresAt); err != nil || left < 30*time.Second || left > time.Minute || !strings.Contains(link.URL, hutch.PortLinkParameter) {
		t.Errorf("linked %+v, %v", link, err)
	}
	for range 2 {
		if err := s.svc.Unexpose(bounded(t), id, 3000); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := s.svc.Ports(bounded(t), id); err != nil || list == nil || len(list) != 0 {
		t.Errorf("the list is %v, %v", list, err)
	}
	_, err = s.svc.LinkPort(bounded(t), id, 3000, 60)
	wantKind(t, hutch.NotFound, err, "a link to what is not exposed")
	_, err = s.svc.Ports(bounded(t), "nobody")
	wantKind(t, hutch.NotFound, err, "ports of no sandbox")
}

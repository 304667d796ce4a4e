package tunnel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch/internal/stream"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// open returns a client's connection through a guarded tunnel, and the other end of the tunnel, where the program is.
func open(t *testing.T) (client, program *net.TCPConn) {
	t.Helper()
	client, near := pair(t)
	far, program := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stream.Join(ctx, Conn(near), far)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return client, program
}

func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dialled, accepted} {
		c.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { c.Close() })
	}
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// TestNamesOfOthers: a program in a sandbox gets no byte of a request for a name of the console or of a preview, in
// whatever pieces it comes, and the client gets an error.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	cookie := "\r\nCookie: hutch_session=secret\r\n\r\n"
	for name, pieces := range map[string][]string{
		"the console":             {"GET / HTTP/1.1\r\nHost: hutch.localhost:8080" + cookie},
		"a preview":               {"POST /x HTTP/1.1\r\nAccept: */*\r\nhost:8000-demo-x7.LOCALHOST" + cookie + "body"},
		"a dot at the end":        {"GET / HTTP/1.1\r\nHost: hutch.localhost.:8080" + cookie},
		"a WebSocket":             {"GET /ws HTTP/1.1\r\nHost: hutch.localhost:8080\r\nConnection: Upgrade\r\nUpgrade: websocket" + cookie},
		"in pieces":               {"G", "ET", " ", "/", "?x HTTP/1", ".1\r", "\nHo", "st: hutch.local", "host:8080", cookie},
		"a long address":          {"GET /" + strings.Repeat("x", maxHead/2) + " HTTP/1.1\r\nHost: hutch.localhost" + cookie},
		"an address too long":     {"GET /" + strings.Repeat("x", maxHead) + " HTTP/1.1\r\nHost: hutch.localhost" + cookie},
		"without carriage return": {"GET / HTTP/1.1\nHost: hutch.localhost\nCookie: hutch_session=secret\n\n"},
	} {
		client, program := open(t)
		go func() {
			for _, piece := range pieces {
				io.WriteString(client, piece)
				time.Sleep(time.Millisecond) // makes it likely that this piece arrives alone; the verdict does not depend on it
			}
		}()
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusMisdirectedRequest || err != nil || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain") || !strings.HasSuffix(string(text), ".\n") {
			t.Errorf("%s: %+v, %s, %v", name, answer, text, err)
		}
		client.Close()
		if got, _ := io.ReadAll(program); len(got) > 0 {
			t.Errorf("%s: the program gets %.200q", name, got)
		}
	}
}

// TestAnswersBefore: if a program sends an answer before the request, no browser shows it as a page of the console.
func TestAnswersBefore(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]string{
		"at once": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"}, "in pieces": {"h", "tt", "p/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"}, "after what browsers skip": {"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
	} {
		for host, status := range map[string]int{"hutch.localhost:8080": http.StatusMisdirectedRequest, "localhost:8080": http.StatusOK} {
			client, program := open(t)
			for _, piece := range pieces {
				io.WriteString(program, piece)
				time.Sleep(time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond) // so that data that is not held back arrives
			fmt.Fprintf(client, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
			got := bufio.NewReader(client)
			for next, err := got.Peek(1); err == nil && next[0] != 'H' && next[0] != 'h'; next, err = got.Peek(1) {
				got.Discard(1)
			}
			line, err := got.ReadString('\n')
			if err != nil || !strings.Contains(line, fmt.Sprint(" ", status, " ")) {
				t.Errorf("%s, %s: %q, %v", name, host, line, err)
			}
			client.Close()
		}
	}
}

// TestOtherProtocols: data that is not an HTTP request for such a name passes unchanged, piece by piece, whichever side
// sends first.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]string{
		"by number":            {"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"},
		"by localhost":         {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
		"by another name":      {"GET / HTTP/1.1\r\nHost: notlocalhost\r\nX: hutch.localhost\r\n\r\n"},
		"by no name":           {"GET / HTTP/1.0\r\n\r\n"},
		"through a proxy":      {"GET http://hutch.localhost/ HTTP/1.1\r\n", "Host: hutch.localhost\r\n\r\n"},
		"HTTP/0.9":             {"GET /\r\n"},
		"Redis":                {"GET /x\r\n", "SET a Host: hutch.localhost\r\n"},
		"Redis's own protocol": {"*1\r\n", "$4\r\nPING\r\n"},
		"mail":                 {"HELO hutch.localhost\r\n", "P"},
		"a shell, key by key":  {"g", "r", "e", "p"},
		"TLS":                  {"\x16\x03\x01\x00\x05hello"},
		"bytes":                {"\x00", "\xff\xfe", strings.Repeat("\n", 100_000)},
	} {
		client, program := open(t)
		for i, piece := range pieces {
			io.WriteString(client, piece)
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(program, got); err != nil || string(got) != piece {
				t.Fatalf("%s: piece %d: %q, %v", name, i, got, err)
			}
			io.WriteString(program, "\x00http"+piece)
			got = make([]byte, 5+len(piece))
			if _, err := io.ReadFull(client, got); err != nil || string(got) != "\x00http"+piece {
				t.Fatalf("%s: piece %d comes back as %q, %v", name, i, got, err)
			}
		}
		client.CloseWrite()
		if rest, err := io.ReadAll(program); len(rest) > 0 || err != nil {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
	}
	for _, greeting := range []string{"SSH-2.0-x\r\n", "220 hello\r\n", "\xff\xfd\x18", "J\x00\x00\x00\x0a8.0.36", "hello, this is http\n"} {
		client, program := open(t)
		io.WriteString(program, greeting)
		got := make([]byte, len(greeting))
		if _, err := io.ReadFull(client, got); err != nil || string(got) != greeting {
			t.Errorf("a greeting %q comes as %q, %v", greeting, got, err)
		}
	}
	client, program := open(t)
	io.WriteString(client, "GET /unfinished")
	client.CloseWrite()
	if got, err := io.ReadAll(program); string(got) != "GET /unfinished" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestBrowsersUse: an HTTP client uses each connection for one host name only, so all requests of a connection are for the
// name of the first request. Browsers do this, and so does Go's client.
func TestBrowsersUse(t *testing.T) {
	t.Parallel()
	var hosts []string
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hosts = append(hosts, r.Host) }))
	defer inside.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer l.Close()
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", inside.Listener.Addr().String())
			if err != nil {
				near.Close()
				continue
			}
			go stream.Join(ctx, Conn(near.(*net.TCPConn)), far)
		}
	}()
	browser := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}}}
	defer browser.CloseIdleConnections()
	var statuses []int
	for _, host := range []string{"127.0.0.1", "127.0.0.1", "hutch.localhost", "127.0.0.1", "hutch.localhost"} {
		answer, err := browser.Get("http://" + host + ":8080/")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		statuses = append(statuses, answer.StatusCode)
	}
	if !slices.Equal(statuses, []int{200, 200, 421, 200, 421}) || slices.Contains(hosts, "hutch.localhost:8080") || len(hosts) != 3 {
		t.Error(statuses, hosts)
	}
}

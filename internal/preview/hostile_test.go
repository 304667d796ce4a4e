package preview

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// raw sends bytes and returns the answer until the server closes.
func (b *bed) raw(t *testing.T, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, text)
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// TestSmuggledRequests sends bytes that two servers could parse as different requests. The server inside must see one
// request, or none.
func TestSmuggledRequests(t *testing.T) {
	seen := make(chan string, 10)
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		seen <- r.URL.Path
	}, nil)
	const head = "POST /first HTTP/1.1\r\nHost: " + public + ".localhost\r\nConnection: close\r\n"
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: " + public + ".localhost\r\n\r\n"
	for name, attack := range map[string]string{
		"length and chunks":      head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"two lengths":            head + "Content-Length: 0\r\nContent-Length: 60\r\n\r\n" + smuggled,
		"a length with a sign":   head + "Content-Length: +0\r\n\r\n" + smuggled,
		"chunks in disguise":     head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"chunks twice":           head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"a space before a colon": head + "Content-Length : 60\r\n\r\n" + smuggled,
		"a folded line":          head + "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + smuggled,
		"a bare line feed":       head + "Content-Length: 0\n\n" + smuggled,
		"a chunk's extension":    head + "Transfer-Encoding: chunked\r\n\r\n0;a=\nb\r\n\r\n" + smuggled,
		"a NUL":                  head + "X: a\x00b\r\nContent-Length: 0\r\n\r\n" + smuggled,
	} {
		b.raw(t, attack)
		for done := false; !done; {
			select {
			case path := <-seen:
				if path != "/first" {
					t.Errorf("%s: the server inside saw %s", name, path)
				}
			default:
				done = true
			}
		}
	}
}

func TestHostsThatAreNone(t *testing.T) {
	b := open(t, dump, nil)
	for name, head := range map[string]string{
		"two hosts":     "GET / HTTP/1.1\r\nHost: " + public + ".localhost\r\nHost: localhost\r\n\r\n",
		"no host":       "GET / HTTP/1.1\r\n\r\n",
		"spaces in it":  "GET / HTTP/1.1\r\nHost: " + public + ".localhost evil\r\n\r\n",
		"a huge header": "GET / HTTP/1.1\r\nHost: " + public + ".localhost\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"many headers":  "GET / HTTP/1.1\r\nHost: " + public + ".localhost\r\n" + strings.Repeat("X: a\r\n", 100_000) + "\r\n",
		"CONNECT":       "CONNECT " + public + ".localhost:80 HTTP/1.1\r\nHost: " + public + ".localhost:80\r\nConnection: close\r\n\r\n",
	} {
		if answer := b.raw(t, head); strings.HasPrefix(answer, "HTTP/1.1 2") {
			t.Errorf("%s: %.60q", name, answer)
		}
	}
	// A request's absolute target takes precedence over its Host header.
	if answer := b.raw(t, "GET http://localhost/x HTTP/1.1\r\nHost: "+public+".localhost\r\nConnection: close\r\n\r\n"); !strings.Contains(answer, "the daemon") {
		t.Errorf("a target elsewhere: %.80q", answer)
	}
}

// TestSlowLoris holds connections open with request headers that never end.
func TestSlowLoris(t *testing.T) {
	b := open(t, dump, nil)
	c, err := net.Dial("tcp", b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+public+".localhost\r\nX: ")
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("an answer to half a request")
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("the connection is still open")
	}
}

// inside starts a server in the sandbox that answers with raw bytes.
func inside(t *testing.T, serve func(net.Conn)) string {
	return served(t, func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		serve(c)
	})
}

// served returns an address at which serve handles each connection, which is then closed.
func served(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return ln.Addr().String()
}

func TestServersThatMisbehave(t *testing.T) {
	for name, test := range map[string]struct {
		serve func(net.Conn)
		want  int
	}{
		"says nothing": {func(c net.Conn) { io.Copy(io.Discard, c) }, 504},
		"closes":       {func(net.Conn) {}, 502},
		"is no HTTP":   {func(c net.Conn) { io.WriteString(c, "220 mail.example ESMTP\r\n") }, 502},
		"never ends its head": {func(c net.Conn) {
			io.Copy(c, strings.NewReader("HTTP/1.1 200 OK\r\n"+strings.Repeat("X: a\r\n", 100_000)))
		}, 502},
		"a huge header": {func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("a", 1<<20)+"\r\n\r\n") }, 502},
		"two lengths": {func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nabc")
		}, 502},
		"switches to what it was not asked for": {func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
		}, 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, nil, func(o *Options) { o.AnswerTimeout = time.Second })
			b.addr = inside(t, test.serve)
			if resp, _ := b.ask(t, "GET", public, "/", nil); resp.StatusCode != test.want {
				t.Errorf("%d, want %d", resp.StatusCode, test.want)
			}
		})
	}
}

// A client that does not read slows a flooding server down, and the server's connection ends when the client leaves.
func TestFloodIsHeldBack(t *testing.T) {
	sent := make(chan int, 1)
	b := open(t, nil, nil)
	b.addr = inside(t, func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		total, piece := 0, make([]byte, 1<<20)
		for {
			n, err := c.Write(piece)
			if total += n; err != nil {
				break
			}
		}
		sent <- total
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", b.URL, nil)
	req.Host = public + ".localhost"
	resp, err := b.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.CopyN(io.Discard, resp.Body, 1<<20)
	cancel()
	resp.Body.Close()
	select {
	case n := <-sent:
		if n > 64<<20 {
			t.Errorf("%d MiB were taken for a client that read 1", n>>20)
		}
	case <-time.After(20 * time.Second):
		t.Error("the server still sends to a client that has gone")
	}
}

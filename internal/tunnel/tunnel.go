// Package tunnel guards a port of a person's machine that leads to a program in a sandbox.
//
// A browser sends the cookies of a host name to every port of it. So the program must not be reachable under a name that
// another server of the machine uses: hutch.localhost is the console's, and previews have names below localhost, too. A
// browser that opens http://hutch.localhost:8080/ would send the console's session to the program behind port 8080, and a
// page of that program can lead the browser there.
//
// The guard reads the first bytes of a client. A request of HTTP/1 by a name below localhost is refused; everything else
// passes as it is. The first request of a connection is enough: a browser uses a connection for one host name only.
// Bytes that can still become an HTTP request are held back until the host is known, and so is an answer that comes before
// the request.
package tunnel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// End is the client's end of a tunnel.
type End interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// maxHead is how many bytes are held back. Browsers send longer addresses, but hardly any server accepts them.
const maxHead = 64 << 10

var errRefused = errors.New("the request is for another server of the client's machine")

// Guard is an End that refuses requests by names of other servers.
type Guard struct {
	End
	head  head   // the part that is held back
	known func() // ends the wait for the verdict

	verdict chan struct{} // closed when the host is known
	refused atomic.Bool
	answer  []byte // the first bytes that the program sent
}

// New guards an end.
func New(e End) *Guard {
	g := &Guard{End: e, verdict: make(chan struct{})}
	g.known = sync.OnceFunc(func() { close(g.verdict) })
	return g
}

// Read returns the client's data.
func (g *Guard) Read(p []byte) (int, error) {
	for !g.isKnown() {
		n, err := g.End.Read(p)
		switch host, done := g.head.add(p[:n]); {
		case done && isOthers(host), !done && len(g.head.bytes) > maxHead:
			g.refuse(host)
		case done || err != nil: // the next call gets the error again
			g.known()
		}
	}
	if g.refused.Load() {
		return 0, errRefused
	}
	if len(g.head.bytes) == 0 {
		g.head.bytes = nil
		return g.End.Read(p)
	}
	n := copy(p, g.head.bytes)
	g.head.bytes = g.head.bytes[n:]
	return n, nil
}

func (g *Guard) isKnown() bool {
	select {
	case <-g.verdict:
		return true
	default:
		return false
	}
}

// Write sends the program's data to the client. An answer that comes before the request is held back: a browser would show
// it as a page of the name that it requests.
func (g *Guard) Write(p []byte) (int, error) {
	if !g.isKnown() {
		g.answer = append(g.answer, p[:min(len(p), max(0, answerStart-len(g.answer)))]...)
		if isAnswer(g.answer) {
			<-g.verdict
		}
	}
	if g.refused.Load() {
		<-g.verdict // after an error the caller closes the connection, so the refusal has to be sent before
		return 0, errRefused
	}
	return g.End.Write(p)
}

// Close implements io.Closer.
func (g *Guard) Close() error {
	err := g.End.Close()
	g.known()
	return err
}

// lingerTime is how long a client that still sends has to receive the answer.
const lingerTime = 2 * time.Second

// refuse answers the client, and ends the connection.
func (g *Guard) refuse(host string) {
	g.refused.Store(true)
	defer g.known()
	g.head = head{}
	text := fmt.Sprintf("This port leads to a program in a sandbox, which does not answer by the name %.100q. To a name below localhost, a browser\n"+
		"sends the cookies of other servers of this machine, such as those of Hutch's console. Use localhost or 127.0.0.1 instead.\n", host)
	if host == "" {
		text = "This port leads to a program in a sandbox. The request says too late which host it is for. Shorten its address.\n"
	}
	fmt.Fprintf(g.End, "HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"+
		"Cache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	g.End.CloseWrite()
	defer time.AfterFunc(lingerTime, func() { g.End.Close() }).Stop()
	io.Copy(io.Discard, g.End) // a connection that is closed with unread data can lose the answer
}

// isOthers reports whether a host can belong to another server of the client's machine.
func isOthers(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.HasSuffix(strings.ToLower(strings.TrimRight(host, ".")), ".localhost")
}

// methods are the HTTP methods that browsers use.
var methods = []string{"GET /", "POST /", "HEAD /", "PUT /", "DELETE /", "OPTIONS /", "PATCH /"}

// head is the beginning of a client's data.
type head struct {
	bytes []byte
	line  int // start of the incomplete line
	lines int // lines that have ended
}

// add adds bytes, and returns the host of the request; "" if the request names no host, or is not HTTP/1 to a server. done
// is false while more bytes can change the result.
func (h *head) add(b []byte) (host string, done bool) {
	looked := len(h.bytes)
	h.bytes = append(h.bytes, b...)
	if !slices.ContainsFunc(methods, func(m string) bool {
		n := min(len(m), len(h.bytes))
		return m[:n] == string(h.bytes[:n])
	}) {
		return "", true
	}
	for {
		n := bytes.IndexByte(h.bytes[looked:], '\n')
		if n < 0 {
			return "", false
		}
		line := strings.TrimSuffix(string(h.bytes[h.line:looked+n]), "\r")
		looked += n + 1
		h.line = looked
		h.lines++
		name, value, _ := strings.Cut(line, ":")
		switch {
		case h.lines == 1 && !strings.HasPrefix(line[strings.LastIndexByte(line, ' ')+1:], "HTTP/1."), line == "":
			return "", true
		case h.lines > 1 && strings.EqualFold(name, "Host"):
			return strings.TrimSpace(value), true
		}
	}
}

// answerStart is how far browsers look for the beginning of an answer, in bytes.
const answerStart = 8

// isAnswer reports whether the first bytes of a program are, or can become, an HTTP/1 answer.
func isAnswer(b []byte) bool {
	text := strings.ToLower(string(b))
	if strings.Contains(text, "http") {
		return true
	}
	for n := 1; n < len("http") && len(b) < answerStart; n++ {
		if strings.HasSuffix(text, "http"[:n]) {
			return true
		}
	}
	return false
}

// Conn guards a connection from a client.
func Conn(c *net.TCPConn) net.Conn { return conn{c, New(c)} }

// conn is a guarded net.Conn.
type conn struct {
	net.Conn
	guard *Guard
}

func (c conn) Read(p []byte) (int, error)  { return c.guard.Read(p) }
func (c conn) Write(p []byte) (int, error) { return c.guard.Write(p) }
func (c conn) Close() error                { return c.guard.Close() }

// CloseWrite ends the program's data.
func (c conn) CloseWrite() error { return c.guard.CloseWrite() }

package egress

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"time"
)

// carryNamed carries a connection that is allowed because of a name, if the client asks for that name.
func (g *Gateway) carryNamed(p *connection, down, up net.Conn) error {
	client, server := newBuffered(down), newBuffered(up)
	web := p.dst.Port() == 80 || p.dst.Port() == 443
	if !web {
		first, err := firstWord(client, server)
		if err != nil {
			return err
		}
		if first == server {
			relay(client, server)
			return nil
		}
	}
	client.SetReadDeadline(time.Now().Add(helloTime))
	switch how, err := detectProtocol(client.r); {
	case errors.Is(err, errHidden):
		p.refuse(err.Error())
		return nil
	case err != nil:
		return err
	case how == secure:
		return g.carryTLS(p, client, server)
	case how == plain || web:
		return g.carryHTTP(p, client, server)
	}
	relay(client, server)
	return nil
}

func (g *Gateway) carryTLS(p *connection, down, up net.Conn) error {
	name, down, err := hello(down)
	v := p.named("tls", name)
	if err != nil {
		v = verdict{reason: err.Error()}
	}
	if !v.allowed() {
		down.Write(alert)
		p.refuse(v.reason)
		return nil
	}
	if g.opens(name, p.dst.Port()) {
		g.broker(p, name, down, up)
		return nil
	}
	relay(down, up)
	return nil
}

// buffered is a connection whose next bytes can be examined.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func newBuffered(c net.Conn) *buffered { return &buffered{c, bufio.NewReaderSize(c, maxLine)} }

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }
func (b *buffered) CloseWrite() error          { return closeWrite(b.Conn) }

// firstWord waits for the first byte, and returns which side sent it. That distinguishes protocols: in TLS and HTTP
// the client speaks first.
func firstWord(client, server *buffered) (*buffered, error) {
	type word struct {
		from *buffered
		err  error
	}
	words := make(chan word, 2)
	for _, c := range []*buffered{client, server} {
		c.SetReadDeadline(time.Now().Add(quietTime))
		go func() {
			_, err := c.r.Peek(1)
			words <- word{c, err}
		}()
	}
	first := <-words
	for _, c := range []*buffered{client, server} {
		c.SetReadDeadline(time.Unix(1, 0)) // ends the other wait
	}
	<-words
	server.SetReadDeadline(time.Time{})
	client.SetReadDeadline(time.Time{})
	return first.from, first.err
}

// recordOther reports whether a byte begins a TLS record with which no honest client begins: a change of cipher, an
// alert, data, a heartbeat.
func recordOther(first byte) bool {
	return first >= 20 && first <= 24 && first != recordHandshake
}

var errHidden = errors.New("what was sent could be a request of HTTP that is hidden from us")

// detectProtocol recognizes the client's protocol without consuming its bytes. If the first line of a text is one of
// HTTP, so is the text; if that line does not end, the protocol stays unknown.
func detectProtocol(r *bufio.Reader) (manner, error) {
	for n := 1; ; n++ {
		head, err := r.Peek(n)
		if err == bufio.ErrBufferFull || errors.Is(err, os.ErrDeadlineExceeded) {
			return other, errHidden
		}
		if err != nil {
			return other, err
		}
		line := bytes.TrimLeft(head, "\r\n") // servers skip them
		if len(line) > 0 && line[0] == recordHandshake {
			if len(line) < len(head) {
				return other, errHidden // no honest client begins so, and a lenient server might accept the rest
			}
			return secure, nil
		}
		if len(line) > 0 && recordOther(line[0]) {
			return other, errHidden
		}
		switch c := head[n-1]; {
		case len(line) == 0:
		case c == '\n':
			if bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")) {
				return plain, nil
			}
			return other, nil
		case c == 0, (c < ' ' && c != '\t' || c > '~') && !bytes.ContainsAny(line, " \t"):
			return other, nil
		}
	}
}

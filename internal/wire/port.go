package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// maxListening is how many listening ports the daemon reports; it drops the rest.
const maxListening = 1024

// ports is a list of valid port numbers.
type ports []int

func (ps *ports) UnmarshalJSON(b []byte) error {
	var list []int
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for _, p := range list {
		if p < 1 || p > 65535 {
			return fmt.Errorf("a program listens on port %d", p)
		}
	}
	*ps = list[:min(len(list), maxListening)]
	return nil
}

// Listening returns the ports on which programs inside listen, in order.
func (c *Client) Listening(ctx context.Context) ([]int, error) {
	return call[ports](ctx, c, Request{Op: "listening"})
}

// Dial connects to a server inside, over a separate connection. ctx bounds only the connecting.
func (c *Client) Dial(ctx context.Context, port int) (*PortConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, replyTime, broken(errors.New("no answer in time")))
	defer cancel()
	cn, err := c.open(ctx)
	if err != nil {
		return nil, c.fault(ctx, err)
	}
	if err := cn.connect(ctx, port); err != nil {
		cn.Close()
		return nil, c.fault(ctx, err)
	}
	return &PortConn{Conn: cn.Conn, greeting: cn.r.rest()}, nil
}

func (cn *conn) connect(ctx context.Context, port int) error {
	body, err := json.Marshal(Request{Op: "port", Port: port})
	if err != nil {
		return err
	}
	t, _, err := cn.begin(ctx, body)
	if !cn.stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && t != TypeReply {
		err = fmt.Errorf("frame of type %q in answer to port", t)
	}
	return err
}

// rest returns the bytes that were read from the connection but not returned: from here on, r is not used any more.
func (r *Reader) rest() []byte {
	b := make([]byte, r.r.Buffered())
	io.ReadFull(r.r, b) // from memory
	return b
}

// PortConn is a connection to a server inside. As with any connection, only one Read can run at a time.
type PortConn struct {
	net.Conn
	greeting []byte // read already
}

func (p *PortConn) Read(b []byte) (int, error) {
	if len(p.greeting) > 0 {
		n := copy(b, p.greeting)
		p.greeting = p.greeting[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// WriteTo lets the kernel copy the bytes, if possible.
func (p *PortConn) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(p.greeting)
	p.greeting = nil
	if err != nil {
		return int64(n), err
	}
	m, err := io.Copy(w, p.Conn)
	return int64(n) + m, err
}

// CloseWrite ends the server's input, but not its output.
func (p *PortConn) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// LocalAddr and RemoteAddr are names, because the sockets in between have no addresses.
func (p *PortConn) LocalAddr() net.Addr  { return portAddr{} }
func (p *PortConn) RemoteAddr() net.Addr { return portAddr{} }

type portAddr struct{}

func (portAddr) Network() string { return "hutch" }
func (portAddr) String() string  { return "sandbox" }

var _ net.Conn = (*PortConn)(nil)

package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Pipe is a connection with a server in a sandbox, over a WebSocket: binary
// messages are bytes; an empty one ends its direction.
// A deadline that passes ends the whole connection.
type Pipe struct {
	conn *websocket.Conn

	r       io.Reader // the unread rest of the current message
	some    bool      // a part of the current message was read
	eof     bool
	reading deadline
	writing deadline
	sending sync.Mutex
	ended   bool // our direction has ended
}

// maxMessage is the longest message that is sent, in bytes.
const maxMessage = 64 << 10

// NewPipe returns the pipe over a WebSocket that carries nothing else.
func NewPipe(c *websocket.Conn) *Pipe {
	c.SetReadLimit(-1) // no message is held as a whole
	return &Pipe{conn: c, reading: newDeadline(), writing: newDeadline()}
}

// Read implements net.Conn.
func (p *Pipe) Read(b []byte) (int, error) {
	for !p.eof && len(b) > 0 {
		if p.r == nil {
			typ, r, err := p.conn.Reader(p.reading.ctx)
			if err != nil {
				return 0, p.reading.fault(err)
			}
			if typ != websocket.MessageBinary {
				return 0, errors.New("a text message in a connection with a port")
			}
			p.r, p.some = r, false
		}
		n, err := p.r.Read(b)
		p.some = p.some || n > 0
		if err == io.EOF {
			p.r, p.eof, err = nil, !p.some, nil
		}
		if n > 0 || err != nil {
			return n, p.reading.fault(err)
		}
	}
	if p.eof {
		return 0, io.EOF
	}
	return 0, nil
}

// Write implements net.Conn.
func (p *Pipe) Write(b []byte) (n int, err error) {
	p.sending.Lock()
	defer p.sending.Unlock()
	if p.ended {
		return 0, io.ErrClosedPipe
	}
	for err == nil && n < len(b) {
		piece := b[n:min(n+maxMessage, len(b))]
		if err = p.conn.Write(p.writing.ctx, websocket.MessageBinary, piece); err == nil {
			n += len(piece)
		}
	}
	return n, p.writing.fault(err)
}

// CloseWrite ends the data for the other side.
func (p *Pipe) CloseWrite() error {
	p.sending.Lock()
	defer p.sending.Unlock()
	if p.ended {
		return nil
	}
	p.ended = true
	return p.writing.fault(p.conn.Write(p.writing.ctx, websocket.MessageBinary, nil))
}

// Close implements net.Conn.
func (p *Pipe) Close() error {
	p.reading.set(time.Time{})
	p.writing.set(time.Time{})
	return p.conn.CloseNow()
}

// LocalAddr and RemoteAddr are only names: the addresses are unknown.
func (p *Pipe) LocalAddr() net.Addr  { return pipeAddr{} }
func (p *Pipe) RemoteAddr() net.Addr { return pipeAddr{} }

// SetDeadline implements net.Conn.
func (p *Pipe) SetDeadline(t time.Time) error {
	p.reading.set(t)
	p.writing.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (p *Pipe) SetReadDeadline(t time.Time) error { p.reading.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (p *Pipe) SetWriteDeadline(t time.Time) error { p.writing.set(t); return nil }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "hutch" }
func (pipeAddr) String() string  { return "sandbox" }

// deadline is a context whose end can be postponed, until it has ended.
type deadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     *sync.Mutex
	timer  *time.Timer
}

func newDeadline() deadline {
	ctx, cancel := context.WithCancel(context.Background())
	return deadline{ctx: ctx, cancel: cancel, mu: &sync.Mutex{}}
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), d.cancel)
	}
}

// fault returns err in the form that users of deadlines expect.
func (d *deadline) fault(err error) error {
	if err != nil && d.ctx.Err() != nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Join copies bytes between two connections until both directions have ended, one of them breaks or ctx is done, and
// closes both. A direction that ends leaves the other one open.
func Join(ctx context.Context, a, b net.Conn) {
	end := func() {
		a.Close()
		b.Close()
	}
	defer end()
	defer context.AfterFunc(ctx, end)()
	var other sync.WaitGroup
	other.Go(func() { copyDirection(a, b, end) })
	copyDirection(b, a, end)
	other.Wait()
}

func copyDirection(to, from net.Conn, end func()) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil {
		end()
	}
}

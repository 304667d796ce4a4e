package agent

import (
	"sync"

	"hutch/internal/wire"
)

// peer is the client of a running process or code: it receives the output, until the last frame of the request, and
// sends stdin.
type peer struct {
	conn *conn
	w    *wire.Writer
	feed *feed         // nil without stdin
	gone chan struct{} // closed when the connection is gone

	mu     sync.Mutex // held while output is written, which can block for ever
	cursor int64
	closed bool // the end has been sent
}

// output sends output to the client.
func (p *peer) output(kind wire.Type, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.cursor += int64(len(data))
		p.w.WriteOutput(kind, p.cursor, data)
	}
}

// sendLast sends the frame that ends the request.
func (p *peer) sendLast(send func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.conn.endTask()
	send()
}

func (p *peer) fail(err error) { p.sendLast(func() { refuse(p.w, err) }) }

func (p *peer) hangUp() { close(p.gone) }

func (p *peer) stdin(data []byte) bool { return p.feed == nil || p.feed.addInput(data) }

func (p *peer) stdinEnd() {
	if p.feed != nil {
		p.feed.endInput()
	}
}

package egress

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunk = 64 << 10
	// quietTime is how long a connection can stay open without any data.
	quietTime = time.Hour
	// datagramTime is how long datagrams can pause.
	datagramTime = time.Minute
)

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// metered is the sandbox's end of a connection: it counts the bytes, and limits the rate.
type metered struct {
	net.Conn
	p *connection
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b[:min(len(b), chunk)])
	m.p.sent.Add(int64(n))
	m.p.g.counts.sent.Add(int64(n))
	m.p.g.opt.Observe.Carried(n, 0)
	if spent := m.p.g.spend(m.p, n); spent != nil {
		err = spent
	}
	return n, err
}

func (m *metered) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		part := b[done:min(len(b), done+chunk)]
		if err := m.p.g.spend(m.p, len(part)); err != nil {
			return done, err
		}
		n, err := m.Conn.Write(part)
		m.p.received.Add(int64(n))
		m.p.g.counts.received.Add(int64(n))
		m.p.g.opt.Observe.Carried(0, n)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// CloseWrite reports to the sandbox that no more data follows.
func (m *metered) CloseWrite() error { return closeWrite(m.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// spend waits until n bytes can pass, and cuts everything when the total limit is reached.
func (g *Gateway) spend(p *connection, n int) error {
	g.mu.Lock()
	pace, total := g.pace, g.rules.network.Limits.Total
	if total > 0 && !g.exhausted && g.counts.sent.Load()+g.counts.received.Load() > total {
		g.exhausted = true
		for other := range g.live {
			other.cut(spent(total))
		}
	}
	g.mu.Unlock()
	if pace == nil || n == 0 {
		return nil
	}
	return pace.WaitN(p.ctx, n)
}

// relay copies bytes both ways until both directions end, or one fails.
func relay(down, up net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyDirection(down, up)
	}()
	copyDirection(up, down)
	<-done
}

// copyDirection copies one direction, and its end. On an error it closes both ends, because neither direction is of use any
// more.
func copyDirection(to, from net.Conn) {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for {
		from.SetReadDeadline(time.Now().Add(quietTime))
		n, err := from.Read(buf[:])
		if _, werr := to.Write(buf[:n]); werr != nil {
			err = werr
		}
		if err == nil {
			continue
		}
		if err != io.EOF || closeWrite(to) != nil {
			to.Close()
			from.Close()
		}
		return
	}
}

// exchange copies datagrams in both directions, until none arrived for a while.
func exchange(down, up net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{down, up}, {up, down}} {
		both.Go(func() {
			to, from := way[0], way[1]
			defer to.Close()
			defer from.Close()
			buf := chunks.Get().(*[chunk]byte)
			defer chunks.Put(buf)
			for {
				from.SetReadDeadline(time.Now().Add(datagramTime))
				n, err := from.Read(buf[:])
				if err != nil {
					return
				}
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
		})
	}
	both.Wait()
}

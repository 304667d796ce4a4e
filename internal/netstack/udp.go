package netstack

import (
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// How many bytes of datagrams can wait: only a few before the handler has accepted the flow, and then the largest
// datagram and some more.
const (
	datagramBuffer  = 128 << 10
	undecidedBuffer = 4 << 10
)

// handleUDP is called for the first datagram between two ports. Later ones wait at the endpoint while the handler
// decides.
func (s *Stack) handleUDP(t *stack.Stack, id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
	if !s.begin(udpFlows) {
		return true
	}
	f := &udpFlow{stack: s, id: id}
	e, err := udp.NewForwarderRequest(t, id, p).CreateEndpoint(&f.queue)
	if err != nil {
		s.end(udpFlows)
		return true
	}
	e.SocketOptions().SetReceiveBufferSize(undecidedBuffer, true)
	f.endpoint, f.first = e, p.Clone()
	go s.serveUDP(f)
	return true
}

func (s *Stack) serveUDP(f *udpFlow) {
	defer s.end(udpFlows)
	defer f.first.DecRef()
	defer f.endpoint.Close()
	s.handler.UDP(s.ctx, f)
	f.Refuse()
}

// udpFlow implements Flow.
type udpFlow struct {
	stack    *Stack
	id       stack.TransportEndpointID
	queue    waiter.Queue
	endpoint tcpip.Endpoint
	first    *stack.PacketBuffer
	decided  bool
}

func (f *udpFlow) Src() netip.AddrPort { return addrPort(f.id.RemoteAddress, f.id.RemotePort) }
func (f *udpFlow) Dst() netip.AddrPort { return addrPort(f.id.LocalAddress, f.id.LocalPort) }

// Accept implements Flow.
func (f *udpFlow) Accept() (net.Conn, error) {
	if f.decided {
		return nil, errDecided
	}
	f.decided = true
	f.endpoint.SocketOptions().SetReceiveBufferSize(datagramBuffer, true)
	c := &datagrams{UDPConn: gonet.NewUDPConn(&f.queue, f.endpoint), endpoint: f.endpoint, idle: f.stack.limits.Idle}
	c.timer = time.AfterFunc(c.idle, f.endpoint.Abort)
	return c, nil
}

// Refuse implements Flow: the sandbox gets the error that the port is unreachable.
func (f *udpFlow) Refuse() {
	if f.decided {
		return
	}
	f.decided = true
	switch p := f.stack.protocol(f.first.NetworkProtocolNumber).(type) {
	case stack.RejectIPv4WithHandler:
		p.SendRejectionError(f.first, stack.RejectIPv4WithICMPPortUnreachable, true)
	case stack.RejectIPv6WithHandler:
		p.SendRejectionError(f.first, stack.RejectIPv6WithICMPPortUnreachable, true)
	}
}

// datagrams is a connection that ends after a time without traffic.
type datagrams struct {
	*gonet.UDPConn
	endpoint tcpip.Endpoint
	idle     time.Duration
	timer    *time.Timer
}

func (d *datagrams) Read(b []byte) (int, error) {
	n, err := d.UDPConn.Read(b)
	return n, d.resetIdle(err)
}

func (d *datagrams) Write(b []byte) (int, error) {
	n, err := d.UDPConn.Write(b)
	return n, d.resetIdle(err)
}

// SetReadBuffer bounds the bytes that wait for a reader.
func (d *datagrams) SetReadBuffer(n int) error {
	d.endpoint.SocketOptions().SetReceiveBufferSize(int64(n), true)
	return nil
}

func (d *datagrams) resetIdle(err error) error {
	if err == nil {
		d.timer.Reset(d.idle)
	}
	return err
}

// Close implements net.Conn.
func (d *datagrams) Close() error {
	d.timer.Stop()
	return d.UDPConn.Close()
}

package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// handshake bounds the handshake with the sandbox.
	handshake = 10 * time.Second
	// closeTimeout is how long the last bytes of a connection can take after its handler has returned.
	closeTimeout = 10 * time.Second
	// How many bytes can wait in one connection, in each direction: see Stack.take.
	leastBuffer, mostBuffer = 16 << 10, 1 << 20
)

// bound sets the options of all connections.
func bound(t *stack.Stack) tcpip.Error {
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: leastBuffer, Default: leastBuffer, Max: mostBuffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: leastBuffer, Default: leastBuffer, Max: mostBuffer}
	sack := tcpip.TCPSACKEnabled(true)
	// With RACK, a connection that loses packets can be left without a timer and wait forever: when gVisor's sender
	// considers all packets in transit lost, it disables the probe's timer and starts no retransmission timer.
	recovery := tcpip.TCPRecovery(0)
	// On this network no packet arrives after the end of its connection.
	wait := tcpip.TCPTimeWaitTimeoutOption(time.Millisecond)
	linger := tcpip.TCPLingerTimeoutOption(closeTimeout)
	for _, option := range []tcpip.SettableTransportProtocolOption{&receive, &send, &sack, &recovery, &wait, &linger} {
		if err := t.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return err
		}
	}
	return nil
}

// take reserves part of the remaining memory for a connection. The first connections get large buffers, and later ones
// smaller buffers, which still work.
func (s *Stack) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(max((s.limits.Memory-s.reserved)/16, leastBuffer), mostBuffer)
	s.reserved += 2 * n
	return n
}

func (s *Stack) giveBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= 2 * n
}

// handleTCP is called for a SYN, in its own goroutine.
func (s *Stack) handleTCP(r *tcp.ForwarderRequest) {
	if !s.begin(tcpFlows) {
		r.Complete(true)
		return
	}
	defer s.end(tcpFlows)
	f := &tcpFlow{stack: s, request: r, id: r.ID(), buffer: s.take()}
	defer s.giveBack(f.buffer)
	s.handler.TCP(s.ctx, f)
	f.Refuse()
	f.finish()
}

// tcpFlow implements Flow.
type tcpFlow struct {
	stack    *Stack
	request  *tcp.ForwarderRequest // nil once it is accepted or refused
	id       stack.TransportEndpointID
	buffer   int
	queue    waiter.Queue
	endpoint tcpip.Endpoint // nil unless accepted
}

func (f *tcpFlow) Src() netip.AddrPort { return addrPort(f.id.RemoteAddress, f.id.RemotePort) }
func (f *tcpFlow) Dst() netip.AddrPort { return addrPort(f.id.LocalAddress, f.id.LocalPort) }

var errDecided = errors.New("the flow was accepted or refused before")

// Accept implements Flow.
func (f *tcpFlow) Accept() (net.Conn, error) {
	if f.request == nil {
		return nil, errDecided
	}
	e, err := f.doHandshake()
	f.decide(err != nil)
	if err != nil {
		return nil, fmt.Errorf("connect with the sandbox: %s", err)
	}
	f.endpoint = e
	e.SocketOptions().SetReceiveBufferSize(int64(f.buffer), true)
	e.SocketOptions().SetSendBufferSize(int64(f.buffer), true)
	e.SocketOptions().SetDelayOption(false)
	return gonet.NewTCPConn(&f.queue, e), nil
}

// doHandshake does the handshake with the sandbox. Only an event on the queue of the flow ends the handshake early,
// and an event that comes before CreateEndpoint waits is lost, so the event is repeated.
func (f *tcpFlow) doHandshake() (tcpip.Endpoint, tcpip.Error) {
	ctx, cancel := context.WithTimeout(f.stack.ctx, handshake)
	shaken := make(chan struct{})
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		for {
			f.queue.Notify(waiter.WritableEvents)
			select {
			case <-shaken:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	defer stop()
	defer close(shaken)
	return f.request.CreateEndpoint(&f.queue)
}

// Refuse implements Flow.
func (f *tcpFlow) Refuse() {
	if f.request != nil {
		f.decide(true)
	}
}

func (f *tcpFlow) decide(reset bool) {
	f.request.Complete(reset)
	f.request = nil
}

// finish closes the connection and waits until it is completely gone.
func (f *tcpFlow) finish() {
	if f.endpoint == nil {
		return
	}
	entry, hungUp := waiter.NewChannelEntry(waiter.EventHUp)
	f.queue.EventRegister(&entry)
	defer f.queue.EventUnregister(&entry)
	f.endpoint.Close()
	enough := time.NewTimer(closeTimeout)
	defer enough.Stop()
	for !over(f.endpoint) {
		select {
		case <-hungUp:
		case <-enough.C:
			f.endpoint.Abort()
			return
		case <-f.stack.ctx.Done():
			f.endpoint.Abort()
			return
		}
	}
}

// over reports whether both sides know that the connection has ended.
func over(e tcpip.Endpoint) bool {
	switch tcp.EndpointState(e.State()) {
	case tcp.StateClose, tcp.StateError, tcp.StateTimeWait, tcp.StateInitial:
		return true
	}
	return false
}

// Package netstack is the end of a sandbox's network: a TCP/IP stack in the daemon
// that answers for every address.
//
// The other end of a sandbox's network device is a descriptor, and no packet from it
// is forwarded. A connection that begins inside is a [Flow], and a [Handler] decides
// whether to accept it, and what to do with its bytes. So no packet gets around the
// handler, no route of the host leads in or out, and no privilege is needed.
//
// Everything that a sandbox sends is hostile. Packets that no honest kernel sends on
// this network are dropped before further processing (see admit). Packets in a
// second, flows, and the memory of each are bounded; the sandbox's CPU limit paces
// the daemon's work in a flood (see pace); and nothing is allocated before the first
// packet.
package netstack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Handler decides about flows. Each call runs in its own goroutine, and the flow ends when the call returns. ctx is
// done when the network is detached; the connection is then dead, too.
type Handler interface {
	// TCP is called for a new connection. The sandbox gets no answer before Accept or Refuse, so the handler can
	// first dial the destination.
	TCP(ctx context.Context, f Flow)

	// UDP is called at the first datagram from one port to another. DNS queries arrive in this way, too, at the
	// gateway's port 53.
	UDP(ctx context.Context, f Flow)
}

// Flow is a connection, or the datagrams between two ports.
type Flow interface {
	// Src is the source: the sandbox's address.
	Src() netip.AddrPort

	// Dst is the destination: any address, including those of the gateway.
	Dst() netip.AddrPort

	// Accept connects. The connection is closed when the handler returns. A TCP connection has CloseRead and
	// CloseWrite, like net.TCPConn. For UDP, each Read and each Write is one datagram, and reads fail after a time
	// without datagrams.
	Accept() (net.Conn, error)

	// Refuse answers at once that nothing listens. A flow that is neither accepted nor refused when the handler
	// returns is refused.
	Refuse()
}

// Limits bound a sandbox's use of its network. Zero means the default.
type Limits struct {
	// Flows is the highest number of flows at once, of each protocol (1024).
	Flows int
	// Packets is how many packets are read in a second (50,000); others wait, and are lost if the queue is full. At
	// full size that is 26 Gbit. Datagrams and new flows count as several: see pace.
	Packets int
	// CPU is the sandbox's cores (0 for no limit). A sandbox with less than one core gets that fraction of Packets,
	// because the daemon's work is not charged to its account.
	CPU float64
	// Memory is, roughly, how many bytes can wait for their reader, in both directions and all flows (32 MB).
	Memory int
	// Idle is how long datagrams can pause before their flow ends (1 min).
	Idle time.Duration
}

func (l Limits) orDefault() Limits {
	return Limits{
		Flows: either(l.Flows, 1024), Packets: either(l.Packets, 50_000), CPU: l.CPU,
		Memory: either(l.Memory, 32<<20), Idle: either(l.Idle, time.Minute),
	}
}

func either[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Counters count from the start on.
type Counters struct {
	Received, Sent int64 // bytes of packets, as seen by the sandbox
	Flows          int64 // flows that have begun
	Live           int64 // flows now
	Dropped        int64 // packets that were not admitted, and flows beyond the limit
}

// Stack is the network of one sandbox. Its methods are safe for concurrent use.
type Stack struct {
	handler Handler
	limits  Limits
	link    *link
	cancel  context.CancelFunc
	ctx     context.Context

	destroy sync.Once

	received, sent, flows, dropped atomic.Int64

	mu       sync.Mutex
	ip       *stack.Stack // nil until the first packet
	closed   bool
	live     [2]int         // flows, by protocol
	reserved int            // bytes that can wait in connections
	group    sync.WaitGroup // reading the link, and handlers; added to with mu held
}

// Start starts this end of a sandbox's network. file is the network's descriptor, in non-blocking mode, which
// transfers one IP packet at a time, with the addresses of package tun. Close closes it.
func Start(file *os.File, h Handler, l Limits) (*Stack, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Stack{handler: h, limits: l.orDefault()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.link = &link{file: file, raw: raw, stack: s, pace: paceOf(s.limits.Packets, s.limits.CPU)}
	s.group.Go(s.link.serve)
	return s, nil
}

// Close ends all flows and waits for their handlers. Idempotent.
func (s *Stack) Close() error {
	s.mu.Lock()
	s.closed = true
	ip := s.ip
	s.mu.Unlock()
	s.cancel()
	err := s.link.file.Close()
	s.abort(ip)
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// abort ends connections again and again, until all handlers have returned: a handler that has not checked its context
// can still create a connection.
func (s *Stack) abort(ip *stack.Stack) {
	over := make(chan struct{})
	go func() { s.group.Wait(); close(over) }()
	for ip != nil {
		for _, e := range ip.RegisteredEndpoints() {
			e.Abort()
		}
		select {
		case <-over:
			s.destroy.Do(ip.Destroy)
			return
		case <-time.After(time.Millisecond):
		}
	}
	<-over
}

// Counters returns what was counted so far.
func (s *Stack) Counters() Counters {
	s.mu.Lock()
	live := s.live[tcpFlows] + s.live[udpFlows]
	s.mu.Unlock()
	return Counters{
		Received: s.received.Load(), Sent: s.sent.Load(),
		Flows: s.flows.Load(), Live: int64(live), Dropped: s.dropped.Load(),
	}
}

// Protocols, as indexes.
const (
	tcpFlows = iota
	udpFlows
)

// begin counts a new flow if the limit allows it, and reports whether it does. If so, the caller must call end.
func (s *Stack) begin(protocol int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.live[protocol] >= s.limits.Flows {
		s.link.pace.charge(costFlow)
		s.dropped.Add(1)
		return false
	}
	s.live[protocol]++
	s.link.pace.charge(costFlow)
	s.flows.Add(1)
	s.group.Add(1)
	return true
}

func (s *Stack) end(protocol int) {
	s.mu.Lock()
	s.live[protocol]--
	s.mu.Unlock()
	s.group.Done()
}

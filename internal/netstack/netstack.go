// Package netstack is where the network of a sandbox ends: a TCP/IP stack in
// the daemon, that answers for every address there is.
//
// The other end of a sandbox's network device is a descriptor, and no packet
// that comes out of it is passed on to anyone. A connection begun inside is a
// [Flow], and a [Handler] decides whether it is accepted, and what the bytes
// then meet. So what is not handled does not exist, no route of the host leads
// in or out, and no privilege is needed.
//
// All that a sandbox sends is hostile. Packets that no honest kernel sends on
// this net are dropped before they are looked at (see admit); packets in a
// second, flows and the memory of each are bounded, and what a flood makes the
// daemon do is paced by the sandbox's CPU limit (see pace); and nothing is made
// before the first packet.
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

// Handler decides about flows. Its methods are called for each in a goroutine
// of its own, and the flow ends when they return. ctx is done when the network
// is detached; the connection is then dead, too.
type Handler interface {
	// TCP is called when a connection is asked for. Nobody is answered before
	// Accept or Refuse: it may first dial what it is for.
	TCP(ctx context.Context, f Flow)

	// UDP is called at the first datagram from one port to another. Names are
	// asked for like that too: at the gateway's port 53.
	UDP(ctx context.Context, f Flow)
}

// Flow is a connection, or the datagrams between two ports.
type Flow interface {
	// Src is whose it is: the sandbox's address.
	Src() netip.AddrPort

	// Dst is where it is meant to go: any address, those of the gateway among
	// them.
	Dst() netip.AddrPort

	// Accept connects. The connection is closed when the handler returns. That
	// of TCP has CloseRead and CloseWrite, like net.TCPConn; of UDP's, a Read is
	// one datagram, as is a Write, and it ends with an error when none came or
	// went for a while.
	Accept() (net.Conn, error)

	// Refuse says at once that nobody is there. What is neither accepted nor
	// refused when the handler returns is refused.
	Refuse()
}

// Limits bound what a sandbox can make of its network. Zero is the default.
type Limits struct {
	// Flows is how many there may be at once, of each protocol (1024).
	Flows int
	// Packets is how many are taken in a second (50,000); the rest waits, and
	// then is lost. At full size it is 26 Gbit. Datagrams and new flows count
	// for several: see pace.
	Packets int
	// CPU is the sandbox's cores (no limit): one with less than a core has that
	// part of Packets, as the daemon's work for it is not on its account.
	CPU float64
	// Memory is, roughly, how many bytes wait for their reader, in both
	// directions and all flows (32 MB).
	Memory int
	// Idle is for how long datagrams may pause before their flow ends (1 min).
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
	Flows          int64 // begun
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
	reserved int            // bytes that may wait in connections
	group    sync.WaitGroup // reading the link, and handlers; added to with mu held
}

// Start ends a network: file is its descriptor, in non-blocking mode, that
// gives and takes one IP packet at a time, with the addresses of package tun. It
// is closed by Close.
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

// abort ends connections until there are none: one may still be in the making,
// by a handler that has not looked at its context.
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

// begin counts a flow in, if there is room for it; then end must be called.
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

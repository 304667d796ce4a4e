package netstack

import (
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"hutch/internal/linux/tun"
)

// link reads and writes packets. It implements stack.LinkEndpoint.
type link struct {
	file  *os.File
	raw   syscall.RawConn
	stack *Stack
	pace  *pace

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher // receives packets
}

var _ stack.LinkEndpoint = (*link)(nil)

// buffers are read buffers. An idle link holds none.
var buffers = sync.Pool{New: func() any { return new([tun.MTU]byte) }}

// serve passes packets to the stack until the file is closed.
func (l *link) serve() {
	for l.pace.wait(l.stack.ctx) == nil && l.next() == nil {
	}
}

// next waits for a packet and passes it to the stack.
func (l *link) next() error {
	var b *[tun.MTU]byte
	var n int
	var err error
	closed := l.raw.Read(func(fd uintptr) bool {
		b = buffers.Get().(*[tun.MTU]byte)
		n, err = unix.Read(int(fd), b[:])
		if err == unix.EAGAIN || err == unix.EINTR {
			buffers.Put(b)
			return false
		}
		return true
	})
	if closed != nil {
		return closed
	}
	defer buffers.Put(b)
	if err != nil {
		return os.NewSyscallError("read", err)
	}
	l.take(b[:n])
	return nil
}

func (l *link) take(packet []byte) {
	version, ok := admit(packet)
	l.pace.charge(costOf(packet))
	if !ok {
		l.stack.dropped.Add(1)
		return
	}
	l.stack.sent.Add(int64(len(packet)))
	if !l.stack.wake() {
		return
	}
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	defer p.DecRef()
	l.mu.RLock()
	dispatcher := l.dispatcher
	l.mu.RUnlock()
	if dispatcher != nil {
		dispatcher.DeliverNetworkPacket(version, p)
	}
}

// admit returns the IP version of a packet, and whether an honest kernel would send the packet on this network: a
// whole TCP or UDP packet from the sandbox's own address to one machine. It excludes packets that can lie about their
// source or route (raw sockets, options, source routes), that must be kept until more arrives (fragments), or that go
// to several machines (multicast, neighbour discovery). ICMP is not answered.
func admit(packet []byte) (tcpip.NetworkProtocolNumber, bool) {
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		return header.IPv4ProtocolNumber, admit4(packet)
	case header.IPv6Version:
		return header.IPv6ProtocolNumber, admit6(packet)
	}
	return 0, false
}

func admit4(packet []byte) bool {
	if len(packet) < header.IPv4MinimumSize {
		return false
	}
	h := header.IPv4(packet)
	return h.HeaderLength() == header.IPv4MinimumSize && !h.More() && h.FragmentOffset() == 0 &&
		isTransport(h.Protocol()) && netip.AddrFrom4([4]byte(packet[12:16])) == tun.Inside4.Addr() &&
		single(netip.AddrFrom4([4]byte(packet[16:20])))
}

func admit6(packet []byte) bool {
	if len(packet) < header.IPv6MinimumSize {
		return false
	}
	return isTransport(header.IPv6(packet).NextHeader()) && netip.AddrFrom16([16]byte(packet[8:24])) == tun.Inside6.Addr() &&
		single(netip.AddrFrom16([16]byte(packet[24:40])))
}

// costOf returns the cost of a packet, whether it is admitted or not: see pace.
func costOf(packet []byte) int {
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		if len(packet) >= header.IPv4MinimumSize && header.IPv4(packet).Protocol() == uint8(header.UDPProtocolNumber) {
			return costDatagram
		}
	case header.IPv6Version:
		if len(packet) >= header.IPv6MinimumSize && header.IPv6(packet).NextHeader() == uint8(header.UDPProtocolNumber) {
			return costDatagram
		}
	}
	return costPacket
}

func isTransport(protocol uint8) bool {
	return protocol == uint8(header.TCPProtocolNumber) || protocol == uint8(header.UDPProtocolNumber)
}

// reserved4 are addresses of no machine: multicast and reserved.
var reserved4 = netip.MustParsePrefix("224.0.0.0/3")

// single reports whether an address can belong to a single machine that is not the sandbox itself.
func single(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.Is4In6() && !reserved4.Contains(a) &&
		a != tun.Inside4.Addr() && a != tun.Inside6.Addr()
}

// WritePackets implements stack.LinkEndpoint.
func (l *link) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	for n, p := range packets.AsSlice() {
		if err := l.write(p); err != nil {
			return n, err
		}
	}
	return packets.Len(), nil
}

// write writes a packet. If the queue is full, the packet is lost, as on any network.
func (l *link) write(p *stack.PacketBuffer) tcpip.Error {
	parts := p.AsSlices()
	var err error
	closed := l.raw.Write(func(fd uintptr) bool {
		_, err = unix.Writev(int(fd), parts)
		return true
	})
	if closed != nil {
		return &tcpip.ErrAborted{}
	}
	if err != nil {
		return &tcpip.ErrNoBufferSpace{}
	}
	l.stack.received.Add(int64(p.Size()))
	return nil
}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// Capabilities implements stack.LinkEndpoint: packets that stay in memory are not damaged on the way.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// The rest of stack.LinkEndpoint, for a link without addresses.

func (l *link) MTU() uint32                             { return tun.MTU }
func (l *link) SetMTU(uint32)                           {}
func (l *link) MaxHeaderLength() uint16                 { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) Wait()                                   {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) Close()                                  {}
func (l *link) SetOnCloseAction(func())                 {}

package netstack

import (
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const nic = 1

// wake creates the stack, if it is missing. It returns false if the network is closed.
func (s *Stack) wake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ip != nil {
		return !s.closed
	}
	made, err := s.newIP()
	if err != nil { // only for options that do not go together
		panic(err)
	}
	s.ip = made
	return true
}

func (s *Stack) newIP() (*stack.Stack, error) {
	t := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	t.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(t, 0, s.limits.Flows, s.handleTCP).HandlePacket)
	t.SetTransportProtocolHandler(udp.ProtocolNumber, func(id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
		return s.handleUDP(t, id, p)
	})
	for _, err := range []tcpip.Error{
		t.CreateNIC(nic, s.link),
		t.SetPromiscuousMode(nic, true), // accept packets for any address
		t.SetSpoofing(nic, true),        // and answer from it
		bound(t),
	} {
		if err != nil {
			return nil, fmt.Errorf("make a network stack: %s", err)
		}
	}
	t.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	return t, nil
}

// protocol returns the stack's protocol for a version of IP. It is called only for a flow, which exists only with a stack.
func (s *Stack) protocol(n tcpip.NetworkProtocolNumber) stack.NetworkProtocol {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ip.NetworkProtocolInstance(n)
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(addr, port)
}
